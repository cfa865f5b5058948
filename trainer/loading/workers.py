"""Loader workers: processes that read micro-batches, round robin, into memory shared with the rank."""

from __future__ import annotations

import itertools
import mmap
import multiprocessing
import os
import signal
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import DupFd
from typing import Any
from weakref import finalize

import numpy as np
import torch

from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.errors import DataError, WorkerDiedError
from vastrun.trainer.job.config import LoaderConfig
from vastrun.trainer.loading.loader import Position
from vastrun.trainer.sampling.windows import SamplePlan

# Modules that the forkserver imports once for all workers.
_PRELOADED = ["vastrun.trainer.loading.workers", "h5py"]
_EXIT_TIMEOUT_S = 5.0


class Workers:
    """Loader that prefetches in worker processes. The task is pickled to them."""

    def __init__(self, task: Task, sample_plan: SamplePlan, config: LoaderConfig, steps: int) -> None:
        self._task = task
        self._sample_plan = sample_plan
        self._config = config
        self._end = Position(steps, 0)
        self._next = Position(0, 0)
        self._example_batch: Windows | None = None
        self._workers: deque[Worker] = deque()
        self._pending: deque[tuple[Position, Worker]] = deque()

    def read(self, step: int, number: int) -> Windows:
        """Return the micro-batch in shared memory, which is overwritten after the next call.

        Raises DataError when a worker could not read it, WorkerDiedError when a signal ended one.
        """
        position = Position(step, number)
        if self._pending and self._pending[0][0] == position:
            self._request_next()
        else:
            self._restart_at(position)
        _, worker = self._pending.popleft()
        return worker.result()

    def close(self) -> None:
        """End every worker."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()
        self._pending.clear()

    def _restart_at(self, position: Position) -> None:
        self.close()
        self._next = position
        for _ in range(self._config.workers * self._config.prefetch):
            self._request_next()

    def _request_next(self) -> None:
        """Request the next micro-batch from the next worker; its oldest buffer becomes free."""
        position = self._next
        if position >= self._end:
            return
        if not self._workers:
            self._start(position)
        worker = self._workers[0]
        self._workers.rotate(-1)
        worker.request(position)
        self._pending.append((position, worker))
        self._next = position.after(1, accumulation=self._sample_plan.accumulation)

    def _start(self, position: Position) -> None:
        # No `fork`: a copy of a rank would have its sockets, and locks that the rank's threads hold.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        if self._example_batch is None:
            self._example_batch = self._task.batch(
                position.step, self._sample_plan.micro_batch_of(position.step, position.number)
            )
        self._workers = deque(
            Worker(context, number, self._task, self._sample_plan, self._example_batch, self._config.prefetch)
            for number in range(self._config.workers)
        )


class Worker:
    """Worker process that reads requested micro-batches in order, as the rank sees it.

    It starts in a fresh interpreter, without the rank's threads, sockets and GPU, and exits when the rank is
    gone for any reason.
    """

    def __init__(
        self,
        context: ForkServerContext,
        number: int,
        task: Task,
        sample_plan: SamplePlan,
        example: Windows,
        buffers: int,
    ) -> None:
        self._buffers = SharedBuffers(example, buffers)
        self._requested: list[Position] = []
        self._pipe, there = context.Pipe()
        work = (there, task, sample_plan, self._buffers)
        self._process = context.Process(target=_serve, args=work, name=f"loader worker {number}", daemon=True)
        self._process.start()
        # The worker owns this end. If it stayed open here, the rank would wait for a dead worker forever.
        there.close()

    def request(self, position: Position) -> None:
        """Request a micro-batch. Frees the slot of the result before the last `buffers` requests."""
        self._requested.append(position)
        with suppress(ConnectionError):  # `result` reports a dead process
            self._pipe.send(position)

    def result(self) -> Windows:
        """Return the micro-batch of the oldest request.

        Raises DataError when it could not be read, WorkerDiedError when a signal ended the worker.
        """
        position = self._requested.pop(0)
        try:
            buffer, fault = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise self._death_error(position) from None
        if fault:
            raise DataError(f"{self._process.name}: {fault}")
        return self._buffers.read(buffer)

    def close(self) -> None:
        """Wait until the process is gone."""
        self._pipe.close()
        self._process.join(_EXIT_TIMEOUT_S)
        self._process.kill()
        self._process.join(_EXIT_TIMEOUT_S)

    def _death_error(self, position: Position) -> DataError | WorkerDiedError:
        self._process.join(_EXIT_TIMEOUT_S)
        code, who = self._process.exitcode, f"{self._process.name} (pid {self._process.pid})"
        if code and code < 0:
            name = signal.Signals(-code).name
            return WorkerDiedError(f"{who} was killed by {name} while it read step {position.step}")
        return DataError(f"{who} exited with {code} while it read step {position.step}")


def _serve(pipe: Connection, task: Task, sample_plan: SamplePlan, buffers: SharedBuffers) -> None:
    """Run the worker process."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    for buffer in itertools.cycle(range(buffers.count)):
        try:
            position: Position = pipe.recv()
        except (EOFError, ConnectionError):
            return
        fault, indices = None, sample_plan.micro_batch_of(position.step, position.number)
        try:
            buffers.write(buffer, task.batch(position.step, indices))
        except (DataError, OSError) as error:  # any other ends the process
            fault = str(error)
        with suppress(ConnectionError):
            pipe.send((buffer, fault))


_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class Field:
    """Place of one tensor of a batch in a slot."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        return self.offset + prod(self.shape) * np.dtype(self.dtype).itemsize


class SharedBuffers:
    """Slots for `count` batches shaped like `example`, shared with a process that it is pickled to."""

    def __init__(self, example: Windows, count: int) -> None:
        self.count = count
        self._fields = _layout(example)
        self._size = _aligned(self._fields[-1].end)
        fd = os.memfd_create("batches")
        os.posix_fallocate(fd, 0, self._size * count)
        self._map(fd)

    def write(self, buffer: int, batch: Windows) -> None:
        """Write the batch to a slot. Raises DataError when its shapes differ from the example's."""
        found = _layout(batch)
        if found != self._fields:
            raise DataError(
                f"all batches must have equal shapes: expected {_shapes(self._fields)}, got {_shapes(found)}"
            )
        for name, there in self._arrays(buffer).items():
            there[...] = getattr(batch, name).numpy()

    def read(self, buffer: int) -> Windows:
        """Return the batch in the slot, without a copy."""
        return Windows(**{name: torch.from_numpy(array) for name, array in self._arrays(buffer).items()})

    def _arrays(self, buffer: int) -> dict[str, np.ndarray]:
        begin = buffer * self._size
        return {
            field.name: np.ndarray(field.shape, field.dtype, self._memory, begin + field.offset)
            for field in self._fields
        }

    def __getstate__(self) -> dict[str, Any]:
        return {"count": self.count, "fields": self._fields, "size": self._size, "fd": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.count, self._fields, self._size = state["count"], state["fields"], state["size"]
        self._map(state["fd"].detach())

    def _map(self, fd: int) -> None:
        self._fd = fd
        self._memory = mmap.mmap(fd, 0)
        finalize(self, os.close, fd)


def _layout(batch: Windows) -> list[Field]:
    fields: list[Field] = []
    for name, tensor in batch.tensors.items():
        array = tensor.numpy()
        offset = _aligned(fields[-1].end) if fields else 0
        fields.append(Field(name=name, dtype=array.dtype.str, shape=array.shape, offset=offset))
    return fields


def _shapes(fields: list[Field]) -> str:
    return ", ".join(f"{field.name} {field.shape} {field.dtype}" for field in fields)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
