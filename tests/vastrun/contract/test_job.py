"""The job file on a machine: how many of its nodes must stay."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainer.supervision.launches import job_of
from vastrun.contract.job import Job
from vastrun.contract.records import read_as
from vastrun.launcher.core.job import Checkpoints, JobSpec

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


def test_what_a_job_on_a_machine_leaves_out_is_as_a_job_file_leaves_it_out() -> None:
    short = {"run_id": "calm-heron-3f1a", "ranks": 1, "command": ["true"], "stall_s": 30, "start_s": 30}
    job = read_as(Job, {**short, "checkpoints": {"files": "*.pt"}})
    spec, saves = JobSpec(name="program"), Checkpoints()
    assert isinstance(job, Job) and job.checkpoints is not None
    assert (job.outputs, job.outputs_gb, job.nodes) == (spec.outputs, spec.outputs_gb, spec.nodes)
    assert (job.restarts, dict(job.env), job.data) == (spec.restarts, dict(spec.env), spec.data)
    assert (job.checkpoints.keep, job.checkpoints.every_s) == (saves.keep, saves.every_s)
