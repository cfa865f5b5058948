"""How long a machine is held for points, within which money, and whether that pays."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.jobs import train_job
from tests.launcher.decisions.test_placement import HOUR, offer
from vastrun.launcher.core import Forecast, Offer
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.hold_size import (
    HANDOVER_S,
    IDLE_S,
    choose_hold_size,
    expected_s,
    life_s,
    needed_s,
    pays_off,
)
from vastrun.launcher.decisions.policy import lease_of, worst_case_usd
from vastrun.launcher.decisions.pool import MIN_LEFT_S, hold_spec


def job(*, hours: float = 1.0, usd: float | None = None) -> JobSpec:
    spec = train_job()
    return replace(spec, limits=replace(spec.limits, hours=hours, usd=usd))


def test_a_run_may_take_its_hours_or_what_its_money_pays_for_on_its_share() -> None:
    assert life_s(job(hours=1.0), 4.0) == HOUR
    assert life_s(job(hours=1.0, usd=1.0), 4.0) == pytest.approx(HOUR / 4)


def test_a_machine_must_last_for_all_that_a_run_may_take() -> None:
    assert needed_s(job(hours=1.0), 1.0) > HOUR
    assert needed_s(job(hours=0.01), 1.0) == MIN_LEFT_S


def test_what_is_expected_is_measured_else_forecast_else_all_of_the_time() -> None:
    machine = offer(1, 1.0)
    assert expected_s(job(), machine, ()) == HOUR
    assert expected_s(job(), replace(machine, expected_usd=0.5), ()) == HOUR / 2
    known = replace(machine, forecast=Forecast(ready_s=60.0, train_s=600.0, basis="guess"))
    assert expected_s(job(), known, ()) == 600.0
    assert expected_s(job(), known, (50.0, 70.0, 900.0)) == 70.0
    assert expected_s(job(hours=0.01), known, (90.0,)) == 36.0


def test_a_machine_is_not_held_for_one_point() -> None:
    assert not pays_off(offer(1, 1.0), rounds=1, seconds=60.0)
    assert pays_off(offer(1, 1.0), rounds=2, seconds=60.0)
    assert pays_off(offer(1, 0.0), rounds=2, seconds=60.0)


def test_the_machine_lasts_for_its_points_and_all_that_the_last_of_them_may_take() -> None:
    size = choose_hold_size(job(), offer(1, 1.0), slots=1, rounds=5, seconds=600.0, max_usd=100.0)
    assert size is not None
    assert size.hours * HOUR >= needed_s(job(), 1.0) + 4 * (600.0 + HANDOVER_S)
    assert size.usd == pytest.approx(size.hours, abs=0.02)


@pytest.mark.parametrize("most_usd", [1.2, 1.5, 3.0, 50.0])
@pytest.mark.parametrize("slots", [1, 4])
def test_less_money_holds_it_for_fewer_points_and_never_costs_more_than_there_is(
    most_usd: float, slots: int
) -> None:
    machine: Offer = offer(slots, 1.0)
    size = choose_hold_size(job(), machine, slots=slots, rounds=20, seconds=600.0, max_usd=most_usd)
    assert size is not None and size.usd is not None
    assert size.usd <= most_usd
    spec = hold_spec(job(), slots=slots, hours=size.hours, usd=size.usd, idle_s=IDLE_S)
    assert worst_case_usd(spec, machine) <= most_usd + 1e-9
    assert lease_of(spec, machine).life_s >= needed_s(job(), 1.0 / slots), "the first points fit into it"


def test_money_that_pays_for_no_point_holds_no_machine() -> None:
    assert choose_hold_size(job(), offer(1, 1.0), slots=1, rounds=2, seconds=600.0, max_usd=1.0) is None


def test_a_machine_that_is_free_has_no_limit_on_money() -> None:
    size = choose_hold_size(job(), offer(1, 0.0), slots=1, rounds=2, seconds=600.0, max_usd=0.0)
    assert size is not None and size.usd is None
