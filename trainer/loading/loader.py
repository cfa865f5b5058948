"""Loaders: the interface, an inline loader, one for several tasks, and a prefetching thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.sampling.task_schedule import TaskSchedule
from vastrun.trainer.sampling.windows import SamplePlan


@dataclass(frozen=True, order=True)
class Position:
    """Step and micro-batch, both counted from 0."""

    step: int
    number: int
    """Number of the micro-batch in its step."""

    def after(self, micro_batches: int, *, accumulation: int) -> Position:
        """Return the position `micro_batches` later."""
        steps, number = divmod(self.number + micro_batches, accumulation)
        return Position(self.step + steps, number)


class Loader(Protocol):
    """Reads micro-batches in any order; the next one in order comes fastest."""

    def read(self, step: int, number: int) -> Windows:
        """Read a micro-batch of a step, both counted from 0. Raises DataError."""

    def close(self) -> None:
        """End all threads and processes of the loader."""


class InlineLoader:
    """Loader that reads from the task when a micro-batch is requested."""

    def __init__(self, task: Task, sample_plan: SamplePlan) -> None:
        self._task = task
        self._sample_plan = sample_plan

    def read(self, step: int, number: int) -> Windows:
        return self._task.batch(step, self._sample_plan.micro_batch_of(step, number))

    def close(self) -> None:
        """Do nothing: there is nothing to close."""


class MultiTaskLoader:
    """Loader over several tasks; each task's own loader counts its turns and prefetches them."""

    def __init__(self, loaders: Sequence[Loader], task_schedule: TaskSchedule) -> None:
        self._loaders = loaders
        self._task_schedule = task_schedule

    def read(self, step: int, number: int) -> Windows:
        """Read a micro-batch of a step, both counted from 0. Raises DataError."""
        place = self._task_schedule.place(step, number)
        return replace(self._loaders[place.task].read(place.step, place.number), task=place.task)

    def close(self) -> None:
        """End all threads and processes of all loaders."""
        for loader in self._loaders:
            loader.close()


class Prefetcher:
    """Loader that prefetches `depth` micro-batches in a thread."""

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
        """`begin` is called once in the thread, before all else."""
        self._source = source
        self._deliver = deliver
        self._depth = depth
        self._accumulation = accumulation
        self._end = Position(steps, 0)
        self._next = Position(0, 0)
        self._pending: deque[tuple[Position, Future[DeviceTransfer]]] = deque()
        # One thread: a second one would only wait for the interpreter's lock.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="loader", initializer=begin)

    def read(self, step: int, number: int) -> Windows:
        """Return a micro-batch on the device, and start reading the next ones.

        Raises the error of reading it.
        """
        position = Position(step, number)
        if not self._pending or self._pending[0][0] != position:
            self._restart_at(position)
        while len(self._pending) <= self._depth and self._next < self._end:
            self._pending.append((self._next, self._thread.submit(self._fetch, self._next)))
            self._next = self._next.after(1, accumulation=self._accumulation)
        _, transfer = self._pending.popleft()
        return transfer.result().wait()

    def close(self) -> None:
        """Wait for the current read and end the thread."""
        self._thread.shutdown(cancel_futures=True)
        self._source.close()

    def _restart_at(self, position: Position) -> None:
        for _, transfer in self._pending:
            transfer.cancel()
        self._pending.clear()
        self._next = position

    def _fetch(self, position: Position) -> DeviceTransfer:
        return self._deliver(self._source.read(position.step, position.number))


@dataclass(frozen=True, kw_only=True)
class DeviceTransfer:
    """Micro-batch whose copy to the device has started."""

    windows: Windows
    arrived: torch.cuda.Event | None = None

    def wait(self) -> Windows:
        """Make the current stream wait for the copy, and return the micro-batch. The host does not wait."""
        if self.arrived is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.arrived)
            for tensor in self.windows.tensors.values():
                tensor.record_stream(stream)
        return self.windows


def use_device(device: torch.device) -> None:
    """Set the device of the calling thread, which otherwise is the first GPU, another rank's.

    Leaving the stream of another GPU would then already open a context on the first one.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


def make_transfer(device: torch.device, *, pin: bool, reused: bool) -> Callable[[Windows], DeviceTransfer]:
    """Return a function that copies micro-batches to `device`; `reused`: the source may be overwritten.

    On a GPU the copies run on a separate stream. From pinned memory, which torch caches, they block neither
    the host nor the training.
    """
    if device.type != "cuda":
        return lambda windows: DeviceTransfer(windows=windows.map(Tensor.clone) if reused else windows)
    stream = torch.cuda.Stream(device)

    def transfer(windows: Windows) -> DeviceTransfer:
        with torch.cuda.stream(stream):
            there = windows.map(
                lambda tensor: (tensor.pin_memory() if pin else tensor).to(device, non_blocking=pin)
            )
            return DeviceTransfer(windows=there, arrived=stream.record_event())

    return transfer
