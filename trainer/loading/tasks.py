"""Task by task: the micro-batches of a step, each from the loader of the task whose turn it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainer.data.trajectories import Windows
from trainer.loading.loader import Loader
from trainer.sampling.task_schedule import TaskSchedule


class TaskByTask:
    """Each task's own loader counts the turns of that task, and reads ahead of them."""

    def __init__(self, loaders: Sequence[Loader], task_schedule: TaskSchedule) -> None:
        self._loaders = loaders
        self._task_schedule = task_schedule

    def read(self, step: int, number: int) -> Windows:
        """A micro-batch of a step, both counted from 0. Raises DataError."""
        place = self._task_schedule.place(step, number)
        windows = self._loaders[place.task].read(place.step, place.number)
        return replace(windows, task=place.task)

    def close(self) -> None:
        """No thread and no process of any is left."""
        for loader in self._loaders:
            loader.close()
