"""What it costs that a machine rented by a bid may be taken away."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from launcher.core.job import Checkpoints
from launcher.decisions.estimates import again_hours, lost_hours
from tests.jobs import command_job, train_job


def test_with_checkpoints_each_interruption_costs_a_start_and_the_work_since_the_last_one() -> None:
    assert again_hours(10, 0.1, 0.2, 0.1) == pytest.approx(10 * 0.1 * 0.3)


def test_without_checkpoints_all_work_is_done_again() -> None:
    assert again_hours(10, 0.1, 0.0, None) == pytest.approx((math.e - 1) / 0.1 - 10)
    assert again_hours(1, 0.0, 0.0, None) == 0.0


@pytest.mark.parametrize("rate", [1.0, 1e3, 1e9])
def test_a_job_that_is_never_finished_costs_a_bounded_sum(rate: float) -> None:
    assert 0 < again_hours(100, rate, 0.1, None) <= 100 * 100.1


def test_how_much_is_lost_depends_on_how_often_the_job_saves() -> None:
    job = command_job()
    assert lost_hours(job, None) is None
    saves = replace(job, checkpoints=Checkpoints(files="checkpoints/*", every_s=720))
    assert lost_hours(saves, None) == pytest.approx(0.1)
    train = train_job()
    assert train.train is not None
    assert lost_hours(train, 1.0) == pytest.approx(train.train.checkpoint_every / 2 / 3600)
    assert lost_hours(train, None) == 0.1
