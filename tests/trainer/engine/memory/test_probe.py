"""The probe: what fits is agreed by all, wherever a rank fails, and nothing of the search stays."""

import gc
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.slow import slow
from tests.trainer import sessions
from tests.trainer.conftest import together
from tests.trainer.engine.memory.shortage import Shortage
from vastrun.contract.heartbeat import Heartbeat
from vastrun.trainer.distributed.exit import reason_of
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.memory import probe_micro_batch
from vastrun.trainer.engine.session import Session

pytestmark = pytest.mark.torch

BATCH = 12
TRIED = {2: (6, 3, 1), 3: (4, 2, 1)}
"""Micro-batches in the order in which they are tried, by the number of ranks."""
SETTINGS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp", "ema": 0.9},
    "ddp bf16": {"strategy": "ddp", "precision": "bf16", "activation_checkpointing": "full"},
    "ddp muon": {"strategy": "ddp", "optim": {"name": "muon"}},
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sessions.prepare(tmp_path_factory.mktemp("probe") / "box")


def probed(session: Session) -> Session:
    return probe_micro_batch(session, Heartbeat(session.ranks.rank.box / f"beat-{session.ranks.rank.rank}"))


def state(session: Session) -> dict[str, Tensor]:
    """All that a probe might change, in copies."""
    model = dict(session.operator.state_dict())
    average = session.ema.state_dict() if session.ema else {}
    moments = {
        f"{number} {name}": moment
        for number, moments in enumerate(session.optimizer.state.values())
        for name, moment in moments.items()
    }
    gradients = {name: p.grad for name, p in session.operator.named_parameters() if p.grad is not None}
    parts = {"model": model, "average": average, "moments": moments, "gradients": gradients}
    return {
        "random numbers": torch.get_rng_state(),
        **{
            f"{part} {name}": tensor
            for part, tensors in parts.items()
            for name, tensor in sessions.whole(tensors).items()
        },
    }


def trials(
    ranks: Ranks, box: Path, settings: dict[str, Any], count: int
) -> tuple[list[tuple[int, int]], int]:
    """By trial, the micro-batch that was found and the one that had to be; how often this rank failed."""
    share = BATCH // ranks.rank.world_size
    undisturbed: dict[int, tuple[list[tuple[float, float]], dict[str, Tensor]]] = {}
    found, failures = [], 0
    gc.freeze()  # torch itself is no garbage: without it, a look for some takes long
    for trial in range(count):
        draw = random.Random(trial)
        rooms = draw.choices([1, 2, 3, share], k=ranks.rank.world_size)
        if trial % 2:  # the others must learn of it
            alone = draw.randrange(ranks.rank.world_size)
            rooms = [2 if rank == alone else share for rank in range(ranks.rank.world_size)]
        fits = next(size for size in TRIED[ranks.rank.world_size] if size <= min(rooms))
        session = sessions.begin(ranks, box, {"batch": BATCH, "probe": "on", **settings})
        before = state(session)
        lot = random.Random(1000 * trial + ranks.rank.rank)
        shortage = Shortage(session, room=rooms[ranks.rank.rank], lot=lot)
        moments: list[bool] = []
        hook = session.operator.register_forward_hook(
            lambda *_, optimizer=session.optimizer, seen=moments: seen.append(bool(optimizer.state))
        )
        session = probed(session)
        hook.remove()
        assert all(moments)
        after = state(session)
        assert before.keys() == after.keys()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
        if fits not in undisturbed:
            other = sessions.begin(ranks, box, {"batch": BATCH, "micro_batch": fits, **settings})
            undisturbed[fits] = sessions.learn(other, 0, 1), sessions.parameters(other.operator)
        points, weights = undisturbed[fits]
        assert sessions.learn(session, 0, 1) == points
        assert all(torch.equal(weights[name], p) for name, p in sessions.parameters(session.operator).items())
        found.append((session.plan.micro_batch, fits))
        failures += shortage.failures
    return found, failures


@pytest.mark.parametrize(
    ("name", "ranks", "count"), [("ddp", 2, 8), ("ddp", 3, 8), ("ddp bf16", 2, 4), ("ddp muon", 2, 2)]
)
@pytest.mark.slow
def test_every_rank_finds_what_fits_on_all_and_trains_as_if_it_had_been_told(
    name: str, ranks: int, count: int, box: Path
) -> None:
    answers = together(trials, ranks, box, SETTINGS[name], count)
    for found, _ in answers:
        assert [micro_batch for micro_batch, _ in found] == [fits for _, fits in found]
    assert sum(failures for _, failures in answers) > 0


def too_much(ranks: Ranks, box: Path) -> tuple[str, str | None]:
    session = sessions.begin(ranks, box, {"batch": 2, "probe": "on", "strategy": "ddp"})
    Shortage(session, room=0 if ranks.rank.rank == 1 else 1, lot=random.Random(0))
    try:
        probed(session)
    except torch.OutOfMemoryError as error:
        return str(error), reason_of(error)
    raise AssertionError("a window fits into no memory")


def test_a_window_that_does_not_fit_is_the_end_and_tells_how_much_memory_there_is(box: Path) -> None:
    for text, reason in together(too_much, 2, box):
        assert text.startswith("rank 1 has no room for a single window next to weights, gradients and opt")
        assert re.search(r"rank [01] has \d+\.\d GiB of [1-9]\d*\.\d GiB left$", text)
        assert reason == "oom"


@dataclass(frozen=True, kw_only=True)
class Given:
    """What makes a probe needless."""

    settings: dict[str, Any]
    cap: int | None = None


NEEDLESS = [
    Given(settings={}),  # on a CPU
    Given(settings={"probe": "off"}),
    Given(settings={"probe": "on", "micro_batch": 3}),
    Given(settings={"probe": "on", "strategy": "fsdp2"}),
    Given(settings={"probe": "on"}, cap=3),
]


def passes_before_the_first_step(ranks: Ranks, box: Path, given: list[Given]) -> list[int]:
    counts = []
    for case in given:
        capped = replace(ranks, rank=replace(ranks.rank, micro_batch_cap=case.cap))
        session = sessions.begin(capped, box, {"batch": BATCH, **case.settings})
        shortage = Shortage(session, room=0, lot=random.Random(0))
        session = probed(session)
        counts.append(shortage.failures)
    return counts


def test_nothing_is_tried_where_nobody_asked_or_the_answer_is_known(box: Path) -> None:
    assert together(passes_before_the_first_step, 1, box, NEEDLESS) == [[0, 0, 0, 0, 0]]


def task(points: int) -> dict[str, Any]:
    return {"betas": [1.0], "train": 12, "test": 2, "points": points, "frames": 5}


SMALL_AND_LARGE = [task(32), task(64)]


def fits_whatever_comes_first(ranks: Ranks, box: Path, settings: dict[str, Any]) -> list[tuple[int, int]]:
    """The grid that is trained first, and what was found to fit where there is room for 2 large windows."""

    def fail(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if inputs[0].shape[-1] == 64 and len(inputs[0]) > 2:
            raise torch.OutOfMemoryError("injected")

    found = []
    for data in (SMALL_AND_LARGE, SMALL_AND_LARGE[::-1]):
        settings = {**settings, "data": data, "turns": 1, "batch": 8, "probe": "on"}
        session = sessions.begin(ranks, box, settings)
        session.operator.register_forward_pre_hook(fail)
        first = session.tasks[session.task_schedule.place(0, 0).task].train.grid[-1]
        session = probed(session)
        sessions.learn(session, 0, 2)
        found.append((first, session.plan.micro_batch))
    return found


@pytest.mark.parametrize(("ranks", "settings"), [(1, {}), *slow((2, {"strategy": "ddp"}))])
def test_a_large_task_that_comes_later_is_tried_too(
    ranks: int, settings: dict[str, Any], tmp_path: Path
) -> None:
    box = sessions.prepare(tmp_path / "box", data=SMALL_AND_LARGE)
    for found in together(fits_whatever_comes_first, ranks, box, settings):
        assert sorted(found) == [(32, 2), (64, 2)]
