"""Rota: what one rank trains, step by step, turn by turn, in each turn micro-batch by micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainer.sampling.windows import Order
from vastrun.mix import Mix


@dataclass(frozen=True, kw_only=True)
class Place:
    """Of a micro-batch, in the order of its task."""

    task: int
    step: int
    """How many turns the task had before."""
    number: int
    """Of the micro-batch in its turn."""


@dataclass(frozen=True, kw_only=True)
class Rota:
    """Each turn is one task's, the same on all ranks."""

    mix: Mix
    orders: tuple[Order, ...]
    """By task; a step of an order is a turn of its task."""
    turns: int
    """Of a step."""

    @property
    def accumulation(self) -> int:
        """Micro-batches of a turn."""
        return self.orders[0].accumulation

    @property
    def micro_batches(self) -> int:
        """Of a step."""
        return self.turns * self.accumulation

    @property
    def samples(self) -> int:
        """Windows of a step, over all ranks."""
        return self.turns * self.orders[0].batch

    def place(self, step: int, number: int) -> Place:
        """What a micro-batch of a step is, both counted from 0."""
        which, micro_batch = divmod(number, self.accumulation)
        turn = self.mix.turn(step * self.turns + which)
        return Place(task=turn.task, step=turn.number, number=micro_batch)

    def turns_of(self, task: int, steps: int) -> int:
        """How many turns the task has in the first `steps` steps."""
        return self.mix.turns_of(task, steps * self.turns)

    def with_accumulation(self, accumulation: int) -> Rota:
        """The same training in so many micro-batches a turn."""
        return replace(self, orders=tuple(replace(order, accumulation=accumulation) for order in self.orders))
