"""Loader: where the loop gets its micro-batches: the plainest one, and a thread that reads ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.loading.device_transfer import DeviceTransfer
from vastrun.trainer.sampling.task_schedule import TaskSchedule
from vastrun.trainer.sampling.windows import SamplePlan


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


class Prefetcher:
    """Micro-batches by their turns, `depth` of them read before they are asked for."""

    def __init__(
        self,
        source: Loader,
        deliver: Callable[[Windows], DeviceTransfer],
        *,
        depth: int,
        accumulation: int,
        steps: int,
        begin: Callable[[], None] = lambda: None,
    ) -> None:
        """`begin` is called first of all in the thread."""
        self._source = source
        self._deliver = deliver
        self._depth = depth
        self._accumulation = accumulation
        self._end = Position(steps, 0)
        self._next = Position(0, 0)
        self._coming: deque[tuple[Position, Future[DeviceTransfer]]] = deque()
        # One: a second would only wait for the interpreter's lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader", initializer=begin)

    def read(self, step: int, number: int) -> Windows:
        """Return a micro-batch, on the device; the next ones are read meanwhile.

        Raises what reading it raised.
        """
        position = Position(step, number)
        if not self._coming or self._coming[0][0] != position:
            self._begin_at(position)
        while len(self._coming) <= self._depth and self._next < self._end:
            self._coming.append((self._next, self._thread.submit(self._fetch, self._next)))
            self._next = self._next.after(1, accumulation=self._accumulation)
        _, transfer = self._coming.popleft()
        return transfer.result().accept()

    def close(self) -> None:
        """Wait until nothing is being read any more."""
        self._thread.shutdown(cancel_futures=True)
        self._source.close()

    def _begin_at(self, position: Position) -> None:
        for _, transfer in self._coming:
            transfer.cancel()
        self._coming.clear()
        self._next = position

    def _fetch(self, position: Position) -> DeviceTransfer:
        return self._deliver(self._source.read(position.step, position.number))
