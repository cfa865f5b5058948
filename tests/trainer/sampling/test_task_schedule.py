"""Task schedule: exact counts, an even spread, and for each task random numbers of its own."""

import numpy as np
import pytest

from vastrun.trainer.sampling.mix import Mix, counts
from vastrun.trainer.sampling.task_schedule import TaskSchedule, seed_of_task
from vastrun.trainer.sampling.windows import BatchIndices, SamplePlan, WindowSpace


def order(mix: Mix, turns: int) -> list[int]:
    return [mix.turn(number).task for number in range(turns)]


@pytest.mark.parametrize(
    ("mixing", "temperature", "expected"),
    [
        ("balanced", 1.0, [1, 1, 1]),
        ("proportional", 1.0, [1, 2, 5]),
        ("temperature", 1.0, [1, 2, 5]),
        ("temperature", 2.0, [22, 30, 48]),
        ("temperature", 1e9, [33, 33, 34]),
    ],
)
def test_each_task_has_its_exact_count_in_any_period(
    mixing: str, temperature: float, expected: list[int]
) -> None:
    mix = Mix.of((1000, 2000, 5000), seed=3, mixing=mixing, temperature=temperature)  # type: ignore[arg-type]
    period = len(mix.cycle)
    tasks = order(mix, 3 * period)
    for begin in (0, 1, period // 2, 2 * period):
        window = tasks[begin : begin + period]
        assert [window.count(task) for task in range(3)] == expected


def test_tasks_are_spread_evenly_and_not_in_blocks() -> None:
    tasks = order(Mix.of((10, 30, 60), seed=0), 40)
    for begin in range(30):
        window = tasks[begin : begin + 5]
        assert window.count(0) <= 1
        assert 1 <= window.count(1) <= 2
        assert 2 <= window.count(2) <= 4


def test_a_task_too_small_for_a_share_still_has_its_turn() -> None:
    assert counts([1, 999_999], 100) == [1, 99]
    assert counts([1, 1, 1], 2) == [1, 1, 1]
    assert sum(counts([1.3, 2.9, 70.1], 50)) == 50


def test_a_turn_is_a_function_of_the_place_and_numbers_the_data_of_its_task() -> None:
    mix = Mix.of((10, 20, 50), seed=5)
    turns = [mix.turn(number) for number in range(40)]
    for task in range(3):
        numbers = [turn.number for turn in turns if turn.task == task]
        assert numbers == list(range(len(numbers)))
    assert mix.turn(30) == turns[30]
    assert [mix.turns_of(task, 30) for task in range(3)] == [
        sum(turn.task == task for turn in turns[:30]) for task in range(3)
    ]


def test_another_seed_begins_elsewhere_in_the_same_cycle() -> None:
    orders = {tuple(order(Mix.of((10, 20, 50), seed=seed), 8)) for seed in range(20)}
    assert 1 < len(orders) <= 8


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
