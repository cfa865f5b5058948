"""What a job should cost on an offer, also on one that may be taken away."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.jobs import command_job, train_job
from tests.launcher.cost import spent
from vastrun.launcher.core import Forecast, Offer
from vastrun.launcher.core.job import Checkpoints, Limits
from vastrun.launcher.core.market import Basis
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import interruption_hours, is_cut_short, lost_hours, offer_text


def test_with_checkpoints_each_interruption_costs_a_start_and_the_work_since_the_last_one() -> None:
    assert interruption_hours(10, 0.1, 0.2, 0.1) == pytest.approx(10 * 0.1 * 0.3)


def test_without_checkpoints_all_work_is_done_again() -> None:
    assert interruption_hours(10, 0.1, 0.0, None) == pytest.approx((math.e - 1) / 0.1 - 10)
    assert interruption_hours(1, 0.0, 0.0, None) == 0.0


@pytest.mark.parametrize("rate", [1.0, 1e3, 1e9])
def test_a_job_that_is_never_finished_costs_a_bounded_sum(rate: float) -> None:
    assert 0 < interruption_hours(100, rate, 0.1, None) <= 100 * 100.1


def test_how_much_is_lost_depends_on_how_often_the_job_saves() -> None:
    job = command_job()
    assert lost_hours(job, None) is None
    saves = replace(job, checkpoints=Checkpoints(files="checkpoints/*", every_s=720))
    assert lost_hours(saves, None) == pytest.approx(0.1)
    train = train_job()
    assert train.train is not None
    assert lost_hours(train, 1.0) == pytest.approx(train.train.checkpoint_every / 2 / 3600)
    assert lost_hours(train, None) == 0.1


def _offer(expected_usd: float, basis: Basis | None = None) -> Offer:
    forecast = None if basis is None else Forecast(ready_s=60, train_s=600, basis=basis, runs=1)
    offer = spent.run().offer
    assert offer is not None
    return replace(offer, usd_per_hour=1.0, expected_usd=expected_usd, forecast=forecast)


@pytest.mark.parametrize(
    ("expected_usd", "basis", "too_soon"),
    [
        (2.01, None, True),
        (2.01, "measured", True),
        (2.01, "guess", False),
        (2.0, "measured", False),  # just enough
        (0.0, None, False),  # nobody knows
    ],
)
def test_limits_end_a_job_too_soon_only_by_a_speed_that_is_known(
    expected_usd: float, basis: Basis | None, too_soon: bool
) -> None:
    job = replace(train_job(), limits=Limits(usd=2.0, hours=100.0))
    offer = _offer(expected_usd, basis)
    assert policy.worst_case_usd(job, offer) == 2.0
    assert is_cut_short(job, offer) is too_soon


def test_an_offer_names_its_expected_cost_and_its_speed_only_where_they_are_known() -> None:
    job = replace(train_job(), limits=Limits(usd=2.0, hours=100.0))
    assert "expected" not in offer_text(job, _offer(0.0))
    assert "speed" not in offer_text(job, _offer(1.5))
    assert offer_text(job, _offer(1.5, "measured")).startswith(
        "2 x RTX 4090 at $1.00/h; expected $1.50, at most $2.00 and "
    )
    assert offer_text(replace(job, nodes=2), _offer(0.5)).startswith(
        "2 machines, each 2 x RTX 4090 at $1.00/h; expected $1.00, at most $2.00 and "
    )
