"""Trainings whose ranks do not train one thing: they end, and say why."""

from pathlib import Path

import pytest
import torch

from tests.trainer import sessions
from tests.trainer.conftest import together
from vastrun.contract import layout
from vastrun.trainer.checks import DisagreementError, check_start, check_step
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import DataError

pytestmark = pytest.mark.torch

TASK_THAT_IGNORES_INDICES = """
from dataclasses import replace
from vastrun.trainer.data import advection
from vastrun.trainer.data.trajectories import TrajectoryTask

class Deaf(TrajectoryTask):
    def batch(self, step, indices):
        always = {name: getattr(indices, name) * 0 for name in ("trajectory", "image")}
        return super().batch(step, replace(indices, frames=indices.frames - indices.frames[:, :1], **always))

def make(config, folder):
    return Deaf(*advection.load(config, folder))
"""

MODEL_WITH_A_NAN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, *, grid, channels, conditions):
        super().__init__()
        self.mix = nn.Conv1d(channels, channels, 1)
        self.register_buffer("unset", torch.full(grid, torch.nan))

    def forward(self, fields, conditions):
        return self.mix(fields)
"""


def corrupt(ranks: Ranks, box: Path, strategy: str) -> list[str]:
    """What is heard of a training in which rank 1 loses a weight and a buffer after its first step."""
    heard = []
    session = sessions.begin(ranks, box, {"strategy": strategy, "check_every": 3, "micro_batch": 2})
    check_start(session)
    ((loss, _),) = sessions.learn(session, 0, 1)
    check_step(session, 1, loss)
    with torch.no_grad():
        session.operator.encoders[0].content.bias.add_(0.5 * ranks.rank.rank)
        session.operator.encoders[0].position[0, 0] += 0.5 * ranks.rank.rank
    sessions.learn(session, 1, 3)
    for step in (2, 3):
        try:
            check_step(session, step, loss)
        except DisagreementError as error:
            heard.append(str(error))
    return heard


def read_alike(ranks: Ranks, box: Path) -> str | None:
    settings = {**sessions.SMALL["data"], "task": "deaf:make"}
    session = sessions.begin(ranks, box, {"strategy": "ddp", "data": settings})
    try:
        check_start(session)
    except DataError as error:
        return str(error)
    return None


def start_with_a_nan(ranks: Ranks, box: Path) -> str | None:
    # Ranks whose memory differs: an object of one has another address there.
    other_objects = [float(number) for number in range(1000 * ranks.rank.rank)]
    session = sessions.begin(ranks, box, {"strategy": "ddp", "model": {"name": "unset:Net"}})
    try:
        check_start(session)
    except DisagreementError as error:
        return f"{error}, with {len(other_objects)} other objects"
    return None


def curve(ranks: Ranks, box: Path, keep: str) -> list[float]:
    settings = {"strategy": "ddp", "micro_batch": 2, "data": {**sessions.SMALL["data"], "keep": keep}}
    return sessions.curve(ranks, box, settings).losses


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    box = sessions.prepare(tmp_path_factory.mktemp("checks") / "box")
    (box / layout.CODE).mkdir()
    (box / layout.CODE / "deaf.py").write_text(TASK_THAT_IGNORES_INDICES)
    (box / layout.CODE / "unset.py").write_text(MODEL_WITH_A_NAN)
    return box


@pytest.mark.parametrize(
    ("strategy", "differs"),
    [("ddp", "parameter encoders.0.content.bias and in "), ("fsdp2", "buffer encoders.0.position")],
)
def test_replicas_that_went_apart_are_found_at_the_next_check(box: Path, strategy: str, differs: str) -> None:
    first, second = together(corrupt, 2, box, strategy)
    assert first == second
    assert len(first) == 1
    assert first[0].startswith(f"after step 3 the 2 ranks differ in {differs}")


def test_ranks_that_are_given_the_same_data_do_not_begin(box: Path) -> None:
    told = together(read_alike, 2, box)
    assert told[0] == told[1]
    assert told[0] is not None
    assert told[0].startswith("ranks 0 and 1 hold the same values in step 0")


def test_ranks_whose_model_has_the_same_nan_agree(box: Path) -> None:
    assert together(start_with_a_nan, 2, box) == [None, None]


@pytest.mark.slow
def test_losses_are_the_same_from_the_device_and_from_memory(box: Path) -> None:
    assert together(curve, 2, box, "host") == together(curve, 2, box, "device")
