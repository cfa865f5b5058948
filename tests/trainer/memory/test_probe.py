"""The probe: what fits is agreed by all, wherever a rank fails, and nothing of the search stays."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer import engine
from tests.trainer.conftest import together
from tests.trainer.memory.shortage import Shortage
from trainer.dist import Ranks
from trainer.heartbeat import Heartbeat
from trainer.memory.probe import fitted
from trainer.session import Session

pytestmark = pytest.mark.torch

BATCH = 24
FITTING = {1: (24, 12, 6, 3, 1), 2: (12, 6, 3, 1), 3: (8, 4, 2, 1)}
"""Micro-batches in the order in which they are tried, by the number of ranks."""
SETTINGS: dict[str, dict[str, Any]] = {
    "ddp": {"strategy": "ddp", "ema": 0.9},
    "fsdp2": {"strategy": "fsdp2", "ema": 0.9},
    "fsdp2 bf16": {"strategy": "fsdp2", "precision": "bf16", "activation_checkpointing": True},
    "fsdp2 muon": {"strategy": "fsdp2", "optim": {"name": "muon"}, "fsdp2": {"reshard_after_forward": False}},
}


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return engine.prepare(tmp_path_factory.mktemp("probe") / "box")


def probed(session: Session) -> Session:
    return fitted(session, Heartbeat(session.ranks.rank.box / f"beat-{session.ranks.rank.rank}"))


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
            for name, tensor in engine.whole(tensors).items()
        },
    }


def trials(
    ranks: Ranks, box: Path, settings: dict[str, Any], count: int
) -> tuple[list[tuple[int, int]], int]:
    """By trial, the micro-batch that was found and the one that had to be; how often this rank failed."""
    share = BATCH // ranks.rank.world_size
    undisturbed: dict[int, tuple[list[tuple[float, float]], dict[str, Tensor]]] = {}
    found, failures = [], 0
    for trial in range(count):
        rooms = random.Random(trial).choices([1, 2, 3, 5, 7, share], k=ranks.rank.world_size)
        fits = next(size for size in FITTING[ranks.rank.world_size] if size <= min(rooms))
        session = engine.begin(ranks, box, {"batch": BATCH, "probe": "on", **settings})
        before = state(session)
        lot = random.Random(1000 * trial + ranks.rank.rank)
        shortage = Shortage(session, room=rooms[ranks.rank.rank], lot=lot)
        session = probed(session)
        after = state(session)
        assert before.keys() == after.keys()
        assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
        if fits not in undisturbed:
            other = engine.begin(ranks, box, {"batch": BATCH, "micro_batch": fits, **settings})
            undisturbed[fits] = engine.learn(other, 0, 2), engine.parameters(other.operator)
        points, weights = undisturbed[fits]
        assert engine.learn(session, 0, 2) == points
        assert all(torch.equal(weights[name], p) for name, p in engine.parameters(session.operator).items())
        found.append((session.plan.micro_batch, fits))
        failures += shortage.failures
    return found, failures


@pytest.mark.parametrize(
    ("name", "ranks", "count"),
    [("ddp", 2, 12), ("fsdp2", 2, 16), ("fsdp2", 3, 12), ("fsdp2 bf16", 2, 6), ("fsdp2 muon", 2, 4)],
)
def test_every_rank_finds_what_fits_on_all_and_trains_as_if_it_had_been_told(
    name: str, ranks: int, count: int, box: Path
) -> None:
    answers = together(trials, ranks, box, SETTINGS[name], count)
    for found, failures in answers:
        assert [micro_batch for micro_batch, _ in found] == [fits for _, fits in found]
        assert failures
