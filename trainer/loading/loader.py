"""Loader: where the loop gets its micro-batches, and the plainest one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from trainer.data import Task
from trainer.data.trajectories import Windows
from trainer.sampling.task_schedule import TaskSchedule
from trainer.sampling.windows import SamplePlan


@dataclass(frozen=True, order=True)
class Position:
    """Both numbers count from 0."""

    step: int
    number: int
    """Of the micro-batch in its step."""

    def after(self, micro_batches: int, *, accumulation: int) -> Position:
        """Return the turn so many micro-batches later."""
        steps, number = divmod(self.number + micro_batches, accumulation)
        return Position(self.step + steps, number)


class Loader(Protocol):
    """Any micro-batch can be asked for; the next ones after it come quickest."""

    def read(self, step: int, number: int) -> Windows:
        """Read a micro-batch of a step, both counted from 0. Raises DataError."""
        ...

    def close(self) -> None:
        """End every thread and process of it."""
        ...


class InlineLoader:
    """The task itself, asked when the turn comes."""

    def __init__(self, task: Task, sample_plan: SamplePlan) -> None:
        self._task = task
        self._sample_plan = sample_plan

    def read(self, step: int, number: int) -> Windows:
        return self._task.batch(step, self._sample_plan.micro_batch_of(step, number))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class TaskByTask:
    """Each task's own loader counts the turns of that task, and reads ahead of them."""

    def __init__(self, loaders: Sequence[Loader], task_schedule: TaskSchedule) -> None:
        self._loaders = loaders
        self._task_schedule = task_schedule

    def read(self, step: int, number: int) -> Windows:
        """Read a micro-batch of a step, both counted from 0. Raises DataError."""
        place = self._task_schedule.place(step, number)
        windows = self._loaders[place.task].read(place.step, place.number)
        return replace(windows, task=place.task)

    def close(self) -> None:
        """End every thread and process of all loaders."""
        for loader in self._loaders:
            loader.close()
