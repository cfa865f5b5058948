"""Profiling of real trainings: a trace with the requested steps, and the same losses."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import Box, RunningRanks
from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.trainer import data
from vastrun.trainer.job.config import config_of

pytestmark = [pytest.mark.torch, pytest.mark.slow]

Start = Callable[[Box, int], RunningRanks]


@pytest.fixture
def trained(tmp_path: Path, start_ranks: Start) -> Callable[..., Box]:
    """Trains two ranks to the end."""

    def train(name: str, **settings: Any) -> Box:
        box = Box(tmp_path / name, **settings)
        job = config_of(Job.read(box.path))
        data.generate(job.data[0], box.path / layout.DATA)
        assert start_ranks(box, 2).wait() == [0, 0], box.log(0)
        return box

    return train


def test_a_profile_has_the_requested_steps_with_parts_and_keeps_losses(trained: Callable[..., Box]) -> None:
    usual, profiled = trained("usual"), trained("profiled", profile={"step": 5, "steps": 3})
    events = json.loads(
        gzip.decompress((profiled.path / layout.PROFILES / "trace-step-5.json.gz").read_bytes())
    )["traceEvents"]
    marked = [event["name"] for event in events if event.get("cat") == "user_annotation"]
    assert {name for name in marked if name.startswith("step ")} == {"step 5", "step 6", "step 7"}
    assert {"data", "forward", "backward", "optimizer"} <= set(marked)
    assert any(event["name"] == "gloo:all_reduce" for event in events)
    assert "aten::" in (profiled.path / layout.PROFILES / "operations-step-5.txt").read_text()
    assert not (usual.path / layout.PROFILES).exists()
    assert profiled.losses() == usual.losses()
