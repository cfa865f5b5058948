"""The job file on a machine: how many of its nodes must stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.supervision.launches import job_of
from vastrun.contract.job import Job
from vastrun.contract.records import read_as

APART = {"strategy": "diloco", "steps": 100, "checkpoint_every": 20, "diloco": {"min_nodes": 2}}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"nodes": 3}, 3),
        ({"nodes": 3, "command": None, "train": {"steps": 100}}, 3),
        ({"nodes": 3, "command": None, "train": APART}, 2),
        ({"nodes": 1, "command": None, "train": APART}, 1),
    ],
    ids=["a program", "synchronous", "diloco", "diloco on one node"],
)
def test_a_training_continues_with_the_nodes_that_its_strategy_needs(
    changes: dict[str, Any], expected: int
) -> None:
    job = read_as(Job, job_of(**changes))
    assert isinstance(job, Job)
    assert job.min_nodes == expected
