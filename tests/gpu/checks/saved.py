"""Saved: a training that is saved and goes on, on the same ranks, on others, on another kind of device."""

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.check import Figure, Place, Seen, expect
from tests.gpu.comparing import beside
from tests.gpu.ranks import together
from tests.gpu.trainings import STEPS, Settings, begin, box_of, expect_reason, learn, supervised
from vastrun.contract import layout


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A part of a training, up to a step."""

    place: Place
    ranks: int
    until: int


def check_bitwise(place: Place, folder: Path) -> Seen:
    """Save in the middle and go on: the losses are those of a training without a break, bit by bit.

    All trainings share a process for each part, and another one continues them.
    """
    ranks = place.ranks(2)
    jobs: dict[str, tuple[int, Settings]] = {
        "fp32": (1, {}),
        "bf16": (1, {"precision": "bf16"}),
        "muon": (1, {"optim": {"name": "muon"}}),
        "fno": (1, {"model": {"name": "fno", "dim": 32, "depth": 2, "modes": 16}}),
        f"ddp x{ranks}": (ranks, {"strategy": "ddp"}),
        f"fsdp2 x{ranks}": (ranks, {"strategy": "fsdp2", "precision": "bf16"}),
    }
    figures: list[Figure] = []
    for size in sorted({size for size, _ in jobs.values()}):
        same = {name: {**_TOKENS_256, **job} for name, (of, job) in jobs.items() if of == size}
        whole = together(place, _legs, size, folder / f"whole-{size}", place, same, STEPS)[0]
        parts = folder / f"parts-{size}"
        first = together(place, _legs, size, parts, place, same, STEPS // 2)[0]
        rest = together(place, _legs, size, parts, place, same, STEPS)[0]
        for name in same:
            figures += beside({name: first[name] + rest[name]}, whole[name], "bitwise")
    return Seen(figures=figures)


_TOKENS_256: Settings = {
    "deterministic": True,
    "unroll": 1,
    "data": {"betas": [1.0], "train": 32, "test": 8, "points": 1024, "frames": 9},
    "model": {"name": "latent", "dim": 128, "depth": 2, "heads": 4, "patch": 4},
}
"""Enough tokens for the kernels that large trainings use."""


def _legs(
    ranks: Any, folder: Path, place: Place, jobs: Mapping[str, Settings], until: int
) -> dict[str, list[float]]:
    """Train each job up to a step, from its checkpoint where it has one; return the losses."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # as the supervisor sets it for a rank
    found = {}
    for name, settings in jobs.items():
        box = folder / name
        if ranks.rank.is_first and not box.exists():
            box_of(box, place, settings, ranks=ranks.rank.world_size)
        ranks.wait_for_all()
        _, found[name] = _leg(ranks, box, settings, until)
    return found


def check_other_ranks(place: Place, folder: Path) -> Seen:
    """Go on with twice as many ranks, and back."""
    large = 4 if place.ranks(4) == 4 else 2
    sizes = (large // 2, large, large // 2)
    settings: Settings = {"strategy": "fsdp2"}
    until = (7, 14, STEPS)
    legs = [Leg(place=place, ranks=size, until=step) for size, step in zip(sizes, until, strict=True)]
    whole = _chain(folder / "whole", settings, [Leg(place=place, ranks=sizes[0], until=STEPS)])
    name = " to ".join(map(str, sizes)) + " ranks"
    return Seen(figures=beside({name: _chain(folder / "parts", settings, legs)}, whole, "fp32"))


def check_other_device(place: Place, folder: Path) -> Seen:
    """Begin on the CPU and go on on a GPU, and the other way round."""
    cpu, ranks = place.cpu, place.ranks(2)
    whole = _chain(folder / "whole", {}, [Leg(place=cpu, ranks=1, until=STEPS)])
    to_gpu = [Leg(place=cpu, ranks=1, until=10), Leg(place=place, ranks=1, until=STEPS)]
    to_cpu = [Leg(place=place, ranks=1, until=10), Leg(place=cpu, ranks=1, until=STEPS)]
    sharded = [Leg(place=place, ranks=ranks, until=10), Leg(place=cpu, ranks=2, until=STEPS)]
    found = {
        "CPU to GPU": _chain(folder / "to-gpu", {}, to_gpu),
        "GPU to CPU": _chain(folder / "to-cpu", {}, to_cpu),
        f"fsdp2 x{ranks} to 2 on the CPU": _chain(folder / "sharded", {"strategy": "fsdp2"}, sharded),
    }
    return Seen(figures=beside(found, whole, "fp32"))


def check_stop(place: Place, folder: Path) -> Seen:
    """Ask a training to stop while it compiles: it saves, or leaves, within its time."""
    settings: Settings = {"compile": "whole", "steps": 100_000}
    box = box_of(folder / "box", place, settings)
    with supervised(box, {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache")}) as run:
        run.until("compile")
        run.process.send_signal(signal.SIGTERM)
        outcome = run.outcome()
        expect_reason(run, outcome, "stopped")
    return Seen(text=f"after {outcome.steps_done} steps")


def _chain(folder: Path, settings: Settings, legs: Sequence[Leg]) -> list[float]:
    """Train leg by leg, each from the checkpoint of the one before; return all losses."""
    box = box_of(folder, legs[0].place, settings)
    losses: list[float] = []
    for leg in legs:
        start, points = together(leg.place, _leg, leg.ranks, box, settings, leg.until)[0]
        expect(start == len(losses), f"it goes on from step {start}, not {len(losses)}")
        expect((box / layout.CHECKPOINTS).exists(), "no checkpoint was saved")
        losses += points
    return losses


def _leg(ranks: Any, box: Path, settings: Settings, until: int) -> tuple[int, list[float]]:
    session = begin(ranks, box, settings)
    start = session.start
    session, losses = learn(session, start, until)
    session.save(until, losses[-1], durable=True)
    session.loader.close()
    return start, losses
