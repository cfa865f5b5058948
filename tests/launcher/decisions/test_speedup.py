"""What several ranks lose of their time is divided among data, other ranks and fixed work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import train_job
from vastrun.launcher.core.job import Resources
from vastrun.launcher.decisions.speedup import (
    SpeedupRow,
    StepSpeed,
    measured_job,
    rank_counts,
    speedup_key,
    speedup_of,
    step_speed,
)


def speed(step_s: float, data: float = 0.0) -> StepSpeed:
    return StepSpeed(steps=100, step_s=step_s, data=data)


def two_ranks(together: StepSpeed, alone: StepSpeed | None) -> SpeedupRow:
    """The row of two ranks, where one alone takes a second for a step of 16 windows."""
    found = speedup_of("L4", 16, {1: speed(1.0), 2: together}, {} if alone is None else {2: alone})
    return found.rows[1]


def test_the_speed_of_one_rank_is_what_others_are_compared_with() -> None:
    one = speedup_of("L4", 16, {1: speed(1.0), 2: speed(0.5)}, {2: speed(0.5)}).rows[0]
    assert (one.ranks, one.samples_per_s, one.speedup, one.efficiency) == (1, 16.0, 1.0, 1.0)
    assert (one.collectives, one.fixed, one.limit) == (0.0, 0.0, "none")


@pytest.mark.parametrize(
    ("together", "alone", "collectives", "fixed", "limit"),
    [
        (speed(0.5), speed(0.5), 0.0, 0.0, "none"),
        (speed(0.8), speed(0.6), 0.25, 0.125, "collectives"),
        (speed(0.8), speed(0.78), 0.025, 0.35, "fixed"),
        (speed(1.0, data=0.5), speed(0.5), 0.0, 0.0, "data"),
        (speed(0.8), None, None, None, "unknown"),
        (speed(0.8, data=0.3), None, None, None, "data"),
    ],
)
def test_what_a_step_takes_longer_is_explained(
    together: StepSpeed,
    alone: StepSpeed | None,
    collectives: float | None,
    fixed: float | None,
    limit: str,
) -> None:
    row = two_ranks(together, alone)
    assert row.speedup == pytest.approx(1 / together.step_s)
    assert row.efficiency == pytest.approx(row.speedup / 2)
    for measured, expected in ((row.collectives, collectives), (row.fixed, fixed)):
        assert measured == (None if expected is None else pytest.approx(expected, abs=1e-9))
    assert row.limit == limit


def test_ranks_double_up_to_those_of_the_job_and_divide_its_batch() -> None:
    def counts(gpus: int, batch: int) -> list[int]:
        job = train_job(resources=Resources(gpus=gpus))
        assert job.train is not None
        return rank_counts(replace(job, train=replace(job.train, batch=batch)))

    assert counts(8, 16) == [1, 2, 4, 8]
    assert counts(6, 12) == [1, 2, 4, 6]
    assert counts(4, 6) == [1, 2]


def test_the_speed_leaves_out_the_start_and_counts_the_wait_for_data() -> None:
    records = [
        {"step": step, "at": 1000.0 + at, "data_wait": wait}
        for step, at, wait in (
            (1, 0.0, 0.9),
            (5, 20.0, 0.9),
            (10, 21.0, 0.3),
            (15, 22.0, 0.1),
            (20, 23.0, 0.3),
        )
    ]
    assert step_speed(records) == StepSpeed(steps=10, step_s=pytest.approx(0.2), data=pytest.approx(0.2))
    assert step_speed(records[:3]) is None
    assert step_speed([{"step": 1.0, "validation_nrmse": 0.1}] * 9) is None


def test_a_measured_job_has_the_same_work_on_other_ranks() -> None:
    job = train_job()
    measured = measured_job(job, 1, 4)
    assert measured.train is not None
    assert (measured.resources.gpus, measured.ranks_per_node, measured.train.batch) == (1, 1, 4)
    assert measured.train.wandb.mode == "off"
    assert not measured.train.plots


@pytest.mark.parametrize(
    ("ranks", "batch", "micro_batch", "strategy"), [(1, 8, 4, "auto"), (2, 8, 4, "fsdp2"), (4, 8, 2, "fsdp2")]
)
def test_a_measured_job_keeps_its_strategy_and_its_micro_batch_as_far_as_its_ranks_have_one(
    ranks: int, batch: int, micro_batch: int, strategy: str
) -> None:
    job = train_job(resources=Resources(gpus=8))
    assert job.train is not None
    job = replace(job, train=replace(job.train, strategy="fsdp2", micro_batch=4, tensorboard=True))
    measured = measured_job(job, ranks, batch).train
    assert measured is not None
    assert (measured.micro_batch, measured.strategy) == (micro_batch, strategy)
    assert (measured.steps, measured.log_every, measured.tensorboard) == (100_000, 5, False)
    assert (measured.evaluate_every, measured.profile, measured.mlflow.mode) == (None, None, "off")
    longer = measured_job(replace(job, train=replace(job.train, steps=200_000)), ranks, batch)
    assert longer.train is not None and longer.train.steps == 200_000
    on_cpus = measured_job(replace(job, resources=Resources(gpus=0)), ranks, batch)
    assert (on_cpus.resources.gpus, on_cpus.ranks) == (0, ranks)


def test_a_speed_up_is_known_by_the_work_of_the_step_not_by_the_number_of_gpus() -> None:
    job = train_job()
    assert job.train is not None
    assert speedup_key(replace(job, resources=Resources(gpus=8))) == speedup_key(job)
    assert speedup_key(replace(job, ranks=4)) == speedup_key(job)
    assert speedup_key(replace(job, nodes=2)) == speedup_key(job)
    assert speedup_key(replace(job, train=replace(job.train, seed=5))) == speedup_key(job)
    assert speedup_key(replace(job, train=replace(job.train, batch=16))) != speedup_key(job)
