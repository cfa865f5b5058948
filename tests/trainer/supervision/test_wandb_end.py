"""What W&B shows of a training is how it ended, whatever became of rank 0."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.supervision.forked import Train, starting
from tests.trainer.telemetry.wandb_server import WandbServer
from trainer.contract import layout

pytestmark = pytest.mark.torch

RUN = "calm-heron-3f1a"
KILLED = {"what": "SIGKILL once tracked", "where": "forward", "step": 13, "rank": 0}

NEVER_BEGAN = {"what": "exception", "where": "setup", "rank": 1}


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Train]:
    yield from starting(tmp_path)


@pytest.fixture
def wandb() -> Iterator[WandbServer]:
    pytest.importorskip("wandb")
    server = WandbServer()
    yield server
    server.close()


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "reason"), [(KILLED, "signal"), (NEVER_BEGAN, "error")])
def test_a_training_that_failed_is_failed_and_not_crashed(
    fault: dict[str, Any], reason: str, train: Train, wandb: WandbServer
) -> None:
    run = train(fault, restarts={"signal": 0}, train={"wandb": {"mode": "online"}}, env=wandb.environment)
    outcome = run.outcome()
    assert outcome.reason == reason, run.log()
    assert wandb.runs[RUN].state == "failed"
    assert outcome.wandb is not None
    assert (outcome.wandb.mode, outcome.wandb.state) == ("online", "failed")


@pytest.mark.slow
def test_a_training_that_began_again_is_one_run_that_finished(train: Train, wandb: WandbServer) -> None:
    run = train(KILLED, train={"wandb": {"mode": "online"}}, env=wandb.environment)
    outcome = run.outcome()
    assert outcome.reason == "finished", run.log()
    assert [start.reason for start in outcome.starts] == ["signal", "finished"]
    assert list(wandb.runs) == [RUN]
    assert wandb.runs[RUN].state == "finished"
    assert [point["step"] for point in wandb.runs[RUN].history][-10:] == list(range(11, 21))
    assert json.loads((run.box / layout.WANDB).read_text())["state"] == "finished"
