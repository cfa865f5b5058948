"""Steps a second of the trainer, with every safeguard on, beside a bare hand-written DDP loop."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

from benchmarks.box import config, prepare, train_by_hand, train_with_vastrun
from benchmarks.figures import in_turns, show

ROUNDS = 5
STEPS = 150
WARM = 30
"""Steps that are left out: the caches warm up."""


def run() -> None:
    """Prints one line."""
    numbers = itertools.count()
    with tempfile.TemporaryDirectory() as root:

        def box() -> Path:
            return prepare(Path(root) / f"box-{next(numbers)}", config(STEPS))

        pair = in_turns(
            lambda: _steps_per_s(train_with_vastrun(box())),
            lambda: _steps_per_s(train_by_hand(box())),
            ROUNDS,
        )
    show("training, 2 ranks", pair, "steps/s", f"{pair.ratio:.3f} of a bare DDP loop (at least 0.97)")


def _steps_per_s(points: list[dict[str, float]]) -> float:
    warm = [point for point in points if point["step"] >= WARM]
    first, last = warm[0], warm[-1]
    return (last["step"] - first["step"]) / (last["at"] - first["at"])
