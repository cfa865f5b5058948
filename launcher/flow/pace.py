"""Pace: how fast a training goes, from what was seen of it."""

from __future__ import annotations

from dataclasses import dataclass

LEAST_S = 20.0
"""What is seen for less says more of the looks than of the training."""


@dataclass
class Pace:
    """The first step seen and the last; moments on our own clock."""

    began_at: float = 0.0
    first: float = 0
    """0: none was seen."""
    moved_at: float = 0.0
    last: float = 0

    def saw(self, step: float, now: float) -> None:
        """Counts from the first step that somebody saw: what loads and compiles comes before it."""
        if self.first == 0 or step < self.last:
            self.began_at, self.first = now, step
        if step != self.last:
            self.moved_at, self.last = now, step

    @property
    def steps_per_s(self) -> float | None:
        """None while too little was seen."""
        seconds = self.moved_at - self.began_at
        return (self.last - self.first) / seconds if self.first > 0 and seconds >= LEAST_S else None
