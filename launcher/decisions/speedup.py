"""Speed-up: how fast several ranks train a job on one kind of GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class SpeedupRow:
    """Speed of one number of ranks."""

    ranks: int
    step_s: float
    efficiency: float
    """Speed as a multiple of that of one rank, divided by the number of ranks."""


@dataclass(frozen=True, kw_only=True)
class Speedup:
    """Measured speed-up of a job on one kind of GPU."""

    rows: tuple[SpeedupRow, ...]

    def steps_per_s(self, ranks: int) -> float | None:
        """Return the measured speed; None: not measured."""
        return next((1 / row.step_s for row in self.rows if row.ranks == ranks and row.step_s), None)
