"""Task schedule: what one rank trains, step by step, turn by turn, micro-batch by micro-batch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vastrun.mix import Mix
from vastrun.trainer.sampling.windows import SamplePlan


@dataclass(frozen=True, kw_only=True)
class TaskMicroBatch:
    """Of a micro-batch, in the order of its task."""

    task: int
    step: int
    """How many turns the task had before."""
    number: int
    """Of the micro-batch in its turn."""


@dataclass(frozen=True, kw_only=True)
class TaskSchedule:
    """Each turn is one task's, the same on all ranks."""

    mix: Mix
    sample_plans: tuple[SamplePlan, ...]
    """By task; a step of an order is a turn of its task."""
    turns: int
    """Of a step."""

    @property
    def accumulation(self) -> int:
        """Micro-batches of a turn."""
        return self.sample_plans[0].accumulation

    @property
    def micro_batches(self) -> int:
        """Of a step."""
        return self.turns * self.accumulation

    @property
    def samples(self) -> int:
        """Windows of a step, over all ranks."""
        return self.turns * self.sample_plans[0].batch

    def place(self, step: int, number: int) -> TaskMicroBatch:
        """Return what a micro-batch of a step is, both counted from 0."""
        which, micro_batch = divmod(number, self.accumulation)
        turn = self.mix.turn(step * self.turns + which)
        return TaskMicroBatch(task=turn.task, step=turn.number, number=micro_batch)

    def turns_of(self, task: int, steps: int) -> int:
        """Count the turns of the task in the first `steps` steps."""
        return self.mix.turns_of(task, steps * self.turns)

    def with_accumulation(self, accumulation: int) -> TaskSchedule:
        """Return the same training in so many micro-batches a turn."""
        return replace(
            self,
            sample_plans=tuple(
                replace(sample_plan, accumulation=accumulation) for sample_plan in self.sample_plans
            ),
        )
