"""Task schedule: each task has random numbers of its own, whatever other tasks there are."""

import numpy as np

from vastrun.trainer.sampling.mix import Mix
from vastrun.trainer.sampling.task_schedule import TaskSchedule, seed_of_task
from vastrun.trainer.sampling.windows import BatchIndices, SamplePlan, WindowSpace

SPACE = WindowSpace(trajectories=32, frames=9, grid=(16,), unroll=2)


def windows_of(task: str, tasks: list[str]) -> BatchIndices:
    """The sixth batch of a task that is trained with others."""
    plans = tuple(
        SamplePlan(
            seed=seed_of_task(7, name, number),
            batch=8,
            noise=1.0,
            space=SPACE,
            rank=0,
            world_size=1,
            accumulation=1,
        )
        for number, name in enumerate(tasks)
    )
    schedule = TaskSchedule(mix=Mix.of([32] * len(tasks), seed=7), sample_plans=plans, turns=len(tasks))
    return schedule.sample_plans[tasks.index(task)].batch_of(5)


def same(one: BatchIndices, other: BatchIndices) -> list[bool]:
    pairs = (
        (one.trajectory, other.trajectory),
        (one.frames, other.frames),
        (one.noise, other.noise),
        (one.level, other.level),
    )
    return [np.array_equal(mine, its) for mine, its in pairs]


def test_a_further_task_changes_no_other_task_s_windows() -> None:
    alone = windows_of("advection", ["advection"])
    assert all(same(alone, windows_of("advection", ["advection", "darcy"])))
    beside = windows_of("darcy", ["advection", "darcy"])
    assert all(same(beside, windows_of("darcy", ["advection", "burgers", "darcy"])))
    assert all(same(beside, windows_of("darcy", ["burgers", "darcy", "advection", "mine:waves"])))


def test_two_tasks_of_a_size_have_different_windows() -> None:
    tasks = ["advection", "burgers", "darcy"]
    first, second, third = (windows_of(task, tasks) for task in tasks)
    assert not any(same(first, second) + same(first, third) + same(second, third))


def test_the_turns_of_a_step_are_listed() -> None:
    plan = SamplePlan(seed=0, batch=8, noise=0.0, space=SPACE, rank=0, world_size=1, accumulation=2)
    schedule = TaskSchedule(mix=Mix(cycle=(0, 1, 0)), sample_plans=(plan, plan), turns=2)
    assert [schedule.tasks_of(step) for step in range(3)] == [(0, 1), (0, 0), (1, 0)]
