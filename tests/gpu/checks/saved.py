"""Saved: a training that is saved and goes on, on the same ranks, on others, on another kind of device."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.gpu.check import Figure, Place, Seen, expect
from tests.gpu.comparing import beside
from tests.gpu.ranks import together
from tests.gpu.trainings import STEPS, Settings, begin, box_of, expect_reason, learn, supervised
from trainer.contract import layout


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A part of a training, up to a step."""

    place: Place
    ranks: int
    until: int


def check_bitwise(place: Place, folder: Path) -> Seen:
    """Save in the middle and go on: the losses are those of a training without a break, bit by bit."""
    ranks = place.ranks(2)
    jobs: dict[str, tuple[int, Settings]] = {
        "single": (1, {}),
        "single bf16": (1, {"precision": "bf16"}),
        "single muon": (1, {"optim": {"name": "muon"}}),
        f"ddp x{ranks}": (ranks, {"strategy": "ddp"}),
        f"fsdp2 x{ranks}": (ranks, {"strategy": "fsdp2"}),
    }
    figures: list[Figure] = []
    for name, (size, settings) in jobs.items():
        whole = _chain(folder / name / "whole", settings, [Leg(place=place, ranks=size, until=STEPS)])
        legs = [Leg(place=place, ranks=size, until=until) for until in (STEPS // 2, STEPS)]
        figures += beside({name: _chain(folder / name / "parts", settings, legs)}, whole, "bitwise")
    return Seen(figures=figures)


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
    import torch

    # Sums whose order is left to chance would not be the same twice on one GPU either.
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    session = begin(ranks, box, settings)
    start = session.start
    session, losses = learn(session, start, until)
    session.save(until, losses[-1], durable=True)
    session.loader.close()
    return start, losses
