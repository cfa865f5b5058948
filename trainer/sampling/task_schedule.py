"""Task schedule: the task of each turn, and a rank's micro-batches of it. A step has one or more turns."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vastrun.mix import Mix
from vastrun.trainer.sampling.windows import SamplePlan


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

    def turns_of(self, task: int, steps: int) -> int:
        """Count the turns of the task in the first `steps` steps."""
        return self.mix.turns_of(task, steps * self.turns)

    def with_accumulation(self, accumulation: int) -> TaskSchedule:
        """Return the same schedule with `accumulation` micro-batches per turn."""
        return replace(
            self,
            sample_plans=tuple(
                replace(sample_plan, accumulation=accumulation) for sample_plan in self.sample_plans
            ),
        )
