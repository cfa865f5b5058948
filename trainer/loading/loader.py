"""Loader: where the loop gets its micro-batches, and the plainest one."""

from __future__ import annotations

from typing import Protocol

from trainer.data import Task
from trainer.data.trajectories import Windows
from trainer.sampling.windows import Order


class Loader(Protocol):
    """Any micro-batch can be asked for; the next ones after it come quickest."""

    def read(self, step: int, number: int) -> Windows:
        """A micro-batch of a step, both counted from 0. Raises DataError."""
        ...

    def close(self) -> None:
        """No thread and no process of it is left."""
        ...


class Direct:
    """The task itself, asked when the turn comes."""

    def __init__(self, task: Task, order: Order) -> None:
        self._task = task
        self._order = order

    def read(self, step: int, number: int) -> Windows:
        return self._task.batch(step, self._order.micro_batch_of(step, number))

    def close(self) -> None:
        """There is nothing to close."""
