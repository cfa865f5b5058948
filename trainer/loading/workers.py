"""Workers: processes that read micro-batches, each in its turn, into memory shared with the rank."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext

import torch

from vastrun.contract.config import LoaderConfig
from vastrun.contract.errors import DataError, WorkerDiedError
from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.loading.loader import Position
from vastrun.trainer.loading.shared_buffers import SharedBuffers
from vastrun.trainer.sampling.windows import SamplePlan

# What the forkserver imports once, for all workers that it forks.
_PRELOADED = ["vastrun.trainer.loading.workers", "h5py"]
_LEAVES_WITHIN_S = 5.0


class Workers:
    """Micro-batches that processes read ahead. The task is sent to them by pickle."""

    def __init__(self, task: Task, sample_plan: SamplePlan, config: LoaderConfig, steps: int) -> None:
        self._task = task
        self._sample_plan = sample_plan
        self._config = config
        self._end = Position(steps, 0)
        self._next = Position(0, 0)
        self._example: Windows | None = None
        self._fleet: deque[Worker] = deque()
        self._coming: deque[tuple[Position, Worker]] = deque()

    def read(self, step: int, number: int) -> Windows:
        """Return the micro-batch, in shared memory that is written anew after the next call.

        Raises DataError when a worker could not read it, WorkerDiedError when a signal ended one.
        """
        position = Position(step, number)
        if self._coming and self._coming[0][0] == position:
            self._ask()
        else:
            self._begin_at(position)
        _, worker = self._coming.popleft()
        return worker.answer()

    def close(self) -> None:
        """End every worker."""
        for worker in self._fleet:
            worker.close()
        self._fleet.clear()
        self._coming.clear()

    def _begin_at(self, position: Position) -> None:
        self.close()
        self._next = position
        for _ in range(self._config.workers * self._config.prefetch):
            self._ask()

    def _ask(self) -> None:
        """Give the worker that comes next one more to read; its oldest answer is given back."""
        position = self._next
        if position >= self._end:
            return
        if not self._fleet:
            self._start(position)
        worker = self._fleet[0]
        self._fleet.rotate(-1)
        worker.ask(position)
        self._coming.append((position, worker))
        self._next = position.after(1, accumulation=self._sample_plan.accumulation)

    def _start(self, position: Position) -> None:
        # No `fork`: a copy of a rank would have its sockets, and locks that the rank's threads hold.
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(_PRELOADED)
        if self._example is None:
            self._example = self._task.batch(
                position.step, self._sample_plan.micro_batch_of(position.step, position.number)
            )
        self._fleet = deque(
            Worker(context, number, self._task, self._sample_plan, self._example, self._config.prefetch)
            for number in range(self._config.workers)
        )


class Worker:
    """One process that reads what it is asked for, in order, as its rank sees it.

    It begins with a fresh interpreter: it has no thread, no socket and no GPU of the rank's. It leaves when
    the rank is gone, however that ended.
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
        self._asked: list[Position] = []
        self._pipe, there = context.Pipe()
        work = (there, task, sample_plan, self._buffers)
        self._process = context.Process(target=_serve, args=work, name=f"loader worker {number}", daemon=True)
        self._process.start()
        # The worker has this end. Were it open here as well, a dead worker would be waited for, not noticed.
        there.close()

    def ask(self, position: Position) -> None:
        """Ask for a micro-batch. Takes back the slot of the answer before the last `buffers` questions."""
        self._asked.append(position)
        with suppress(ConnectionError):  # what became of the process is told with its answer
            self._pipe.send(position)

    def answer(self) -> Windows:
        """Return what was read for the oldest question.

        Raises DataError when it could not be, WorkerDiedError.
        """
        position = self._asked.pop(0)
        try:
            buffer, fault = self._pipe.recv()
        except (EOFError, ConnectionError):
            raise self._end(position) from None
        if fault:
            raise DataError(f"{self._process.name}: {fault}")
        return self._buffers.read(buffer)

    def close(self) -> None:
        """Wait until the process is gone."""
        self._pipe.close()
        self._process.join(_LEAVES_WITHIN_S)
        self._process.kill()
        self._process.join(_LEAVES_WITHIN_S)

    def _end(self, position: Position) -> DataError | WorkerDiedError:
        self._process.join(_LEAVES_WITHIN_S)
        code, who = self._process.exitcode, f"{self._process.name} (pid {self._process.pid})"
        if code and code < 0:
            name = signal.Signals(-code).name
            return WorkerDiedError(f"{who} was ended by {name} while it read step {position.step}")
        return DataError(f"{who} ended with {code} while it read step {position.step}")


def _serve(pipe: Connection, task: Task, sample_plan: SamplePlan, buffers: SharedBuffers) -> None:
    """Do all that the process does."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    buffer = 0
    while (position := _question(pipe)) is not None:
        fault = _read(task, sample_plan, position, buffers, buffer)
        with suppress(ConnectionError):
            pipe.send((buffer, fault))
        buffer = (buffer + 1) % buffers.count


def _question(pipe: Connection) -> Position | None:
    try:
        position: Position | None = pipe.recv()
    except (EOFError, ConnectionError):
        return None
    return position


def _read(
    task: Task, sample_plan: SamplePlan, position: Position, buffers: SharedBuffers, buffer: int
) -> str | None:
    """Put the micro-batch into the slot; say what was wrong. Any other error ends the process, loudly."""
    try:
        buffers.write(
            buffer, task.batch(position.step, sample_plan.micro_batch_of(position.step, position.number))
        )
    except (DataError, OSError) as error:
        return str(error)
    return None
