"""Turn: the place of a micro-batch in a training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Turn:
    """Both numbers count from 0."""

    step: int
    number: int
    """Of the micro-batch in its step."""

    def after(self, micro_batches: int, *, accumulation: int) -> Turn:
        """The turn so many micro-batches later."""
        steps, number = divmod(self.number + micro_batches, accumulation)
        return Turn(self.step + steps, number)
