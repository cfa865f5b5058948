"""Which offers finish a job in time, and how long a machine may be kept for it."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.jobs import train_job
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.core import Cause, Event, Forecast, Meter, Offer, Phase
from vastrun.launcher.core.errors import JobValueError, NoOfferError
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.decisions import deadlines, policy
from vastrun.launcher.decisions.policy import BOOT_S

NOW = datetime(2026, 11, 24, 16, 0, tzinfo=UTC).timestamp()
HOUR_S = 3600.0


def job(deadline: str | None = "2026-11-24T18:00:00+01:00", **limits: Any) -> JobSpec:
    """To be done in an hour, by default."""
    return train_job(steps=100, limits=Limits(**{"hours": 12.0, "usd": 3.0, "deadline": deadline, **limits}))


def offer(name: str, train_s: float, **changes: Any) -> Offer:
    """One that trains for so long after ten minutes, as was measured."""
    forecast = Forecast(ready_s=600.0, train_s=train_s, basis="measured", runs=3, steps_per_s=100 / train_s)
    made = rtx_4090(
        id=name, host=name, usd_per_hour=1.0, description=name, expected_usd=0.5, forecast=forecast
    )
    return replace(made, **changes)


SLOW, FAST, FASTER = offer("slow", 3600.0), offer("fast", 2400.0), offer("faster", 1200.0)
NEW = offer("new", 100.0, forecast=Forecast(ready_s=600.0, train_s=100.0, basis="guess"))
UNRANKED = offer("unranked", 100.0, forecast=None)
SCALED = offer(
    "scaled", 1.0, forecast=Forecast(ready_s=600.0, train_s=2400.0, basis="scaled", source="T4 x1", runs=1)
)


@pytest.mark.parametrize(
    ("speed", "away_s", "may_have_ended"),
    [
        (1e-2, 2700.0, False),
        (1e-2, 2900.0, True),
        (1e-4, 3e4, False),
        (None, 1900.0, True),
        (1e-4, 4e4, True),
    ],
)
def test_a_program_may_have_ended_unseen_once_it_had_time_for_its_last_step_and_its_outputs(
    speed: float | None, away_s: float, may_have_ended: bool
) -> None:
    meter = Meter(began_at=NOW, answered_at=NOW + HOUR_S)
    run = a_run(phase=Phase.TRAIN, rented_at=NOW, meter=meter, step=90, steps=100, steps_per_s=speed)
    now = NOW + HOUR_S + away_s
    assert policy.may_have_ended(job(None, usd=None), run, FAST, now) is may_have_ended


def names(spec: JobSpec, *offers: Offer, done: int = 0) -> list[str]:
    return [one.id for one in deadlines.offers_in_time(spec, offers, NOW, done)]


def test_what_is_expected_in_time_comes_first_then_what_nobody_knows_and_the_late_are_left_out() -> None:
    market = (NEW, SLOW, FAST, UNRANKED, FASTER, SCALED)
    assert names(job(), *market) == ["fast", "faster", "scaled", "new", "unranked"]
    assert names(job(None), *market) == [one.id for one in market]


def test_a_job_has_to_be_done_before_it_is_asked_to_stop() -> None:
    grace_s = 120.0
    assert names(job(), offer("just", HOUR_S - 600 - grace_s)) == ["just"]
    assert not names(job(), offer("not", HOUR_S - 600 - grace_s + 1))


def test_a_machine_that_is_not_even_ready_in_time_is_left_out() -> None:
    late = replace(NEW, forecast=Forecast(ready_s=HOUR_S, train_s=1.0, basis="guess"))
    assert not names(job(), late)
    with pytest.raises(
        NoOfferError, match="no machine trains before 2026-11-24 18:00; the soonest is ready at"
    ):
        deadlines.require_in_time(job(), [late], NOW)


def test_what_was_done_before_need_not_be_done_again() -> None:
    assert names(job(), SLOW, done=50) == ["slow"]
    assert deadlines.expected_end(job(), SLOW, NOW, done=50) == NOW + 600 + 1800
    assert deadlines.expected_end(job(), SLOW, NOW, done=1000) == NOW + 600


def test_where_all_are_late_the_soonest_and_its_cost_are_named() -> None:
    with pytest.raises(NoOfferError) as caught:
        deadlines.require_in_time(job("2026-11-24T17:20:00+01:00"), [SLOW, FAST], NOW)
    said = str(caught.value)
    assert "no offer is expected to finish by 2026-11-24 17:20" in said
    assert "the soonest, fast (1 x RTX 4090), is expected to finish at 2026-11-24 17:50 for $0.500" in said
    assert not deadlines.require_in_time(job(), [], NOW)


def test_the_plan_says_whether_it_is_expected_in_time_in_the_zone_of_the_deadline() -> None:
    assert deadlines.deadline_text(job(), FAST, NOW) == (
        "expected to finish at 2026-11-24 17:50; it is stopped at 2026-11-24 18:00"
    )
    assert "not known whether it finishes by 2026-11-24 18:00" in deadlines.deadline_text(job(), NEW, NOW)
    assert deadlines.deadline_text(job(None), FAST, NOW) == ""


def test_a_machine_is_kept_no_longer_than_until_the_deadline() -> None:
    spec = policy.within_deadline(job(), NOW)
    lease = policy.lease_of(spec, FAST)
    assert (lease.life_s, lease.life_cause) == (HOUR_S, Cause.TIME_LIMIT)
    assert policy.within_deadline(job(hours=0.5), NOW).limits.hours == 0.5
    assert policy.worst_case_usd(spec, FAST) == pytest.approx(1.0)


def test_a_run_is_past_its_deadline_also_while_its_machine_loads() -> None:
    run = a_run(
        id="one",
        provider="vast",
        phase=Phase.BOOT,
        created_at=NOW,
        offer=FAST,
        rented_at=NOW + HOUR_S - 60,
        usd_per_hour=1.0,
    )
    spec = policy.within_deadline(job(), NOW + HOUR_S - 60)
    assert policy.exceeded_limit(spec, run, NOW + HOUR_S + policy.LIMIT_SLACK_S - 1) is None
    assert policy.exceeded_limit(spec, run, NOW + HOUR_S + policy.LIMIT_SLACK_S + 1) is Cause.TIME_LIMIT


@pytest.mark.parametrize(
    ("now", "said"), [(NOW + HOUR_S - 5, "18:00 is 5 s from now"), (NOW + HOUR_S + 5, "18:00 is over")]
)
def test_a_deadline_that_leaves_no_time_to_train_is_refused(now: float, said: str) -> None:
    with pytest.raises(JobValueError, match=re.escape(said)) as caught:
        deadlines.check_deadline(job(), now, min_s=policy.START_S)
    assert caught.value.cause is Cause.TIME_LIMIT
    deadlines.check_deadline(job(), NOW, min_s=policy.START_S)
    deadlines.check_deadline(job(None), now, min_s=policy.START_S)


OFFER = rtx_4090(usd_per_hour=3.6)
SPEC = train_job(limits=Limits(hours=1.0))
RUN = a_run(
    provider="vast",
    phase=Phase.TRAIN,
    created_at=NOW,
    offer=OFFER,
    instance_id="1",
    usd_per_hour=3.6,
    rented_at=NOW,
    meter=Meter(began_at=NOW + 60),
)


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ([], False),
        ([""], False),
        ([deadlines.LEFT_TO_LEASE], True),
        ([deadlines.LEFT_TO_LEASE, "out_of_reach"], True),
        ([deadlines.LEFT_TO_LEASE, ""], False),
    ],
)
def test_a_machine_is_left_while_no_later_drive_has_reached_it(told: list[str], left: bool) -> None:
    events = [Event(run_id=RUN.id, at=NOW, phase=Phase.TRAIN, text="", told=one) for one in told]
    assert deadlines.is_left_to_lease(events) is left


def test_it_costs_its_price_until_its_lease_ends_it() -> None:
    left = deadlines.estimate_remaining_lease(RUN, SPEC, NOW + 1860)
    assert left is not None
    assert left.ends_at == NOW + 60 + 3600
    assert left.usd == pytest.approx(1800 / 3600 * 3.6)


def test_the_lease_of_one_that_may_still_load_counts_from_the_latest_start() -> None:
    left = deadlines.estimate_remaining_lease(replace(RUN, meter=Meter()), SPEC, NOW)
    assert left is not None and left.ends_at == NOW + BOOT_S + 3600


def test_one_whose_lease_has_ended_costs_no_more() -> None:
    left = deadlines.estimate_remaining_lease(RUN, SPEC, NOW + 7200)
    assert left is not None and left.usd == 0.0


@pytest.mark.parametrize("change", [{"phase": Phase.ENDED}, {"instance_id": None}, {"released_at": NOW + 1}])
def test_a_run_without_a_machine_leaves_none(change: dict[str, object]) -> None:
    assert deadlines.estimate_remaining_lease(replace(RUN, **change), SPEC, NOW) is None
