"""Task schedule: the task of each turn, and a rank's micro-batches of it. A step has one or more turns."""

from dataclasses import dataclass

import numpy as np

from vastrun.trainer.sampling.mix import Mix
from vastrun.trainer.sampling.windows import SamplePlan

_TASK_STREAM = 4
"""Keeps the seeds of tasks apart from other random numbers of the same seed, as in windows.py."""


def seed_of_task(seed: int, task: str, number: int) -> int:
    """Return the seed of a task's windows and noise, by its name and its number in the job.

    The first task has the job's seed, as in a training of this task alone. That of every other one depends on
    its name, not on its number: a further task changes no other task's windows, unless it is put first.
    """
    if number == 0:
        return seed
    drawn = np.random.SeedSequence([seed, _TASK_STREAM, *task.encode()]).generate_state(1, np.uint64)
    return int(drawn[0] >> np.uint64(1))


@dataclass(frozen=True, kw_only=True)
class TaskMicroBatch:
    """Position of a micro-batch in the order of its task."""

    task: int
    step: int
    """Number of the task's earlier turns."""
    number: int
    """Number of the micro-batch in its turn."""


@dataclass(frozen=True, kw_only=True)
class TaskSchedule:
    """Order of the tasks: each turn trains one task, the same on all ranks."""

    mix: Mix
    sample_plans: tuple[SamplePlan, ...]
    """Sample plan of each task; a step of the plan is a turn of the task."""
    turns: int
    """Turns per step."""

    @property
    def accumulation(self) -> int:
        """Micro-batches per turn."""
        return self.sample_plans[0].accumulation

    @property
    def micro_batches(self) -> int:
        """Micro-batches per step."""
        return self.turns * self.accumulation

    @property
    def samples(self) -> int:
        """Windows per step, over all ranks."""
        return self.turns * self.sample_plans[0].batch

    def place(self, step: int, number: int) -> TaskMicroBatch:
        """Return the task and position of a micro-batch of a step, both counted from 0."""
        which, micro_batch = divmod(number, self.accumulation)
        turn = self.mix.turn(step * self.turns + which)
        return TaskMicroBatch(task=turn.task, step=turn.number, number=micro_batch)

    def tasks_of(self, step: int) -> tuple[int, ...]:
        """Return the task of each turn of a step, counted from 0."""
        return tuple(self.mix.turn(step * self.turns + which).task for which in range(self.turns))

    def turns_of(self, task: int, steps: int) -> int:
        """Count the turns of the task in the first `steps` steps."""
        return self.mix.turns_of(task, steps * self.turns)
