"""Workers: processes that read micro-batches, each in its turn."""

from __future__ import annotations

import multiprocessing
from collections import deque

from trainer.contract.config import LoaderConfig
from trainer.data import Task
from trainer.data.trajectories import Windows
from trainer.loading.loader import Position
from trainer.loading.worker import Worker
from trainer.sampling.windows import SamplePlan

# What the forkserver imports once, for all workers that it forks.
_PRELOADED = ["trainer.loading.worker", "h5py"]


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
        for worker in {*self._fleet, *(worker for _, worker in self._coming)}:
            worker.close()
        self._fleet.clear()
        self._coming.clear()

    def _begin_at(self, position: Position) -> None:
        self.close()
        self._next = position
        for _ in range(self._config.workers * self._config.prefetch):
            self._ask()

    def _ask(self) -> None:
        """The worker that comes next has one more to read; its oldest answer is given back."""
        position = self._next
        if position >= self._end:
            return
        if not self._fleet or (not self._config.persistent and self._opens_an_epoch(position)):
            self._renew(position)
        worker = self._fleet[0]
        self._fleet.rotate(-1)
        worker.ask(position)
        self._coming.append((position, worker))
        self._next = position.after(1, accumulation=self._sample_plan.accumulation)

    def _renew(self, position: Position) -> None:
        for worker in self._fleet:
            worker.leave()
        context = multiprocessing.get_context(self._config.start_method)
        context.set_forkserver_preload(_PRELOADED)
        if self._example is None:
            self._example = self._task.batch(
                position.step, self._sample_plan.micro_batch_of(position.step, position.number)
            )
        self._fleet = deque(
            Worker(context, number, self._task, self._sample_plan, self._example, self._config.prefetch)
            for number in range(self._config.workers)
        )

    def _opens_an_epoch(self, position: Position) -> bool:
        batch, total = self._sample_plan.batch, self._sample_plan.space.trajectories
        return position.number == 0 and position.step * batch // total != (position.step - 1) * batch // total
