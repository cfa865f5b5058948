"""Ranks that must hold the same: silence while they do; else a training ends, and says what differs."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.trainer import sessions
from tests.trainer.conftest import together
from vastrun.contract import layout
from vastrun.trainer import checks
from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.errors import DataError
from vastrun.trainer.sampling.windows import BatchIndices, WindowSpace, draw_indices

pytestmark = pytest.mark.torch

NUMBERS = {"learning rate": 0.1, "loss": 2.5}
SPACE = WindowSpace(trajectories=20, frames=9, grid=(16,), symmetry="shift", unroll=3)
WHOLE = draw_indices(1, 4, batch=8, noise=0.0, space=SPACE)


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 1))


def fault(check: Callable[..., None], *arguments: Any) -> str | None:
    try:
        check(*arguments)
    except (checks.DisagreementError, DataError) as error:
        return str(error)
    return None


def replicas(ranks: Ranks) -> dict[str, str | None]:
    mine = model()
    mine.register_buffer("phase", torch.polar(torch.ones(3), torch.arange(3.0)))
    mine.register_parameter("rough", nn.Parameter(torch.ones(7, dtype=torch.bfloat16)))
    odd = ranks.rank.rank == 1
    faults = {"equal": fault(checks.check_replicas, ranks, 7, mine, NUMBERS)}
    with torch.no_grad():
        mine[0].weight[4, 2] += 1e-7 * odd
        faults["a last bit"] = fault(checks.check_replicas, ranks, 7, mine, NUMBERS)
        mine[0].weight[4, 2] = float("nan")
        faults["NaN on all"] = fault(checks.check_replicas, ranks, 7, mine, NUMBERS)
        mine.phase[1] = 1j if odd else mine.phase[1]
        faults["a complex buffer"] = fault(checks.check_replicas, ranks, 7, mine, NUMBERS)
        mine.rough[0] = 1.0 + ranks.rank.rank
        faults["nobody like another"] = fault(checks.check_replicas, ranks, 7, mine, NUMBERS)
    rate = {**NUMBERS, "learning rate": 0.2 if odd else 0.1}
    faults["a number"] = fault(checks.check_replicas, ranks, 7, model(), rate)
    return faults


def shards(ranks: Ranks) -> list[str | None]:
    from torch.distributed.fsdp import fully_shard

    mine = fully_shard(model())  # type: ignore[arg-type]
    equal = fault(checks.check_replicas, ranks, 3, mine, NUMBERS)
    mine[1].running_mean += ranks.rank.rank
    return [equal, fault(checks.check_replicas, ranks, 3, mine, NUMBERS)]


def facts(ranks: Ranks) -> list[str | None]:
    wide = nn.Linear(3, 4 + (ranks.rank.rank == 0))
    told = [
        {"the configuration": checks.digest({"lr": 1, "steps": 2}), "torch": "2.13"},
        {"torch": f"2.{13 + ranks.rank.rank}"},
        {"the model": checks.layout_of(wide)},
    ]
    return [fault(checks.check_facts, ranks, each) for each in told]


def test_the_rank_that_differs_is_named_with_what_differs_and_all_ranks_hear_it() -> None:
    first, *others = together(replicas, 3)
    assert others == [first, first]
    assert first == {
        "equal": None,
        "a last bit": "after step 7 rank 1 of 3 differs from the others in parameter 0.weight",
        "NaN on all": None,
        "a complex buffer": "after step 7 rank 1 of 3 differs from the others in buffer phase",
        "nobody like another": "after step 7 the 3 ranks differ in parameter rough and in 1 more",
        "a number": "after step 7 rank 1 of 3 differs from the others in learning rate",
    }


def test_of_a_sharded_model_what_every_rank_holds_whole_is_compared() -> None:
    expected = "after step 3 the 2 ranks differ in buffer 1.running_mean"
    assert together(shards, 2) == [[None, expected]] * 2


def test_ranks_that_were_told_different_things_do_not_begin() -> None:
    same, versions, layouts = together(facts, 2)[0]
    assert same is None
    assert versions == "the 2 ranks differ in torch: rank 0 has 2.13, rank 1 has 2.14"
    assert layouts is not None
    assert layouts.startswith("the 2 ranks differ in the model: rank 0 has ")


def task() -> TrajectoryTask:
    fields = torch.randn(20, 9, 1, 16, generator=torch.Generator().manual_seed(0))
    trajectories = Trajectories(fields=fields, conditions=torch.zeros(20, 2), symmetry="shift")
    return TrajectoryTask(trajectories, trajectories)


def shares(
    *, asked: list[BatchIndices] | None = None, read: list[BatchIndices] | None = None
) -> list[checks.ReadShare]:
    """Those of two ranks, who were asked for some windows and read some."""
    asked = asked or [WHOLE.share(rank, 2) for rank in (0, 1)]
    return [checks.share_of(a, task().batch(4, r)) for a, r in zip(asked, read or asked, strict=True)]


def test_ranks_that_share_the_batch_are_right() -> None:
    checks.check_shares(4, shares(), checks.windows_of(WHOLE))


def test_a_batch_that_happens_to_hold_a_window_twice_is_right() -> None:
    first = WHOLE.share(0, 2)
    checks.check_shares(4, shares(asked=[first, first]), checks.windows_of(first) * 2)


def test_ranks_that_read_the_same_are_named() -> None:
    first = WHOLE.share(0, 2)
    with pytest.raises(DataError, match="ranks 0 and 1 read the same windows in step 4"):
        checks.check_shares(4, shares(asked=[first, first]), checks.windows_of(WHOLE))


def test_a_task_that_reads_the_same_on_every_rank_whatever_it_is_asked_is_found_out() -> None:
    first = WHOLE.share(0, 2)
    with pytest.raises(DataError, match="ranks 0 and 1 hold the same values in step 4"):
        checks.check_shares(4, shares(read=[first, first]), checks.windows_of(WHOLE))


def test_windows_that_nobody_reads_are_counted() -> None:
    first, second = (WHOLE.share(rank, 2) for rank in (0, 1))
    other = replace(second, trajectory=(second.trajectory + 1) % 20)
    with pytest.raises(DataError, match="skipped 4 windows of step 4 and read 4 others"):
        checks.check_shares(4, shares(asked=[first, other]), checks.windows_of(WHOLE))


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
    session = sessions.begin(ranks, box, {"strategy": strategy, "check_every": 3, "micro_batch": 2})
    checks.check_start(session)
    ((loss, _),) = sessions.learn(session, 0, 1)
    checks.check_step(session, 1, loss)
    with torch.no_grad():
        session.operator.encoders[0].content.bias.add_(0.5 * ranks.rank.rank)
        session.operator.encoders[0].position[0, 0] += 0.5 * ranks.rank.rank
    sessions.learn(session, 1, 3)
    heard = [fault(checks.check_step, session, step, loss) for step in (2, 3)]
    return [each for each in heard if each is not None]


def read_alike(ranks: Ranks, box: Path) -> str | None:
    settings = {**sessions.SMALL["data"], "task": "deaf:make"}
    session = sessions.begin(ranks, box, {"strategy": "ddp", "data": settings})
    return fault(checks.check_start, session)


def start_with_a_nan(ranks: Ranks, box: Path) -> str | None:
    # Ranks whose memory differs: an object of one has another address there.
    other_objects = [float(number) for number in range(1000 * ranks.rank.rank)]
    session = sessions.begin(ranks, box, {"strategy": "ddp", "model": {"name": "unset:Net"}})
    heard = fault(checks.check_start, session)
    return heard and f"{heard}, with {len(other_objects)} other objects"


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
