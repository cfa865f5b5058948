"""Pace: how fast a training goes, from what was seen of it."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.model import Sighting

LEAST_S = 20.0
"""What is seen for less says more of the looks than of the training."""


@dataclass
class Pace:
    """The first step seen and the last; moments on the box's clock."""

    began_at: float = 0.0
    first: int = 0
    """0: none was seen."""
    moved_at: float = 0.0
    last: int = 0

    def saw(self, sighting: Sighting) -> None:
        """Counts from the first step that somebody saw: what loads and compiles comes before it."""
        if self.first == 0 or sighting.step < self.last:
            self.began_at, self.first = sighting.at, sighting.step
        if sighting.step != self.last:
            self.moved_at, self.last = sighting.at, sighting.step

    @property
    def steps_per_s(self) -> float | None:
        """None while too little was seen."""
        seconds = self.moved_at - self.began_at
        return (self.last - self.first) / seconds if self.first > 0 and seconds >= LEAST_S else None
