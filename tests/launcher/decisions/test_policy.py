"""Decisions about money and machines."""

from dataclasses import replace

import pytest

from tests.jobs import train_job
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.core import Cause, ExtraRates, Instance, Meter, Offer, Phase, Run
from vastrun.launcher.core.job import Limits, Resources
from vastrun.launcher.core.market import Lease
from vastrun.launcher.decisions import policy

RUN = a_run(provider="fake", phase=Phase.TRAIN, instance_id="2")


def machine(number: str, label: str) -> Instance:
    return Instance(id=number, label=label, state="running", usd_per_hour=1.0, rented_at=0.0)


def test_of_a_run_s_machines_the_one_that_was_noted_comes_first_and_none_is_forgotten() -> None:
    listed = [
        machine("1", RUN.label),
        machine("2", ""),
        machine("3", "vastrun-other"),
        machine("4", RUN.label),
    ]
    assert [found.id for found in policy.machines_of_run(RUN, listed)] == ["2", "1", "4"]


BOOTED = Meter(began_at=140.0, armed_at=150.0)
ARMED = replace(RUN, rented_at=100.0, meter=BOOTED)


@pytest.mark.parametrize(
    ("run", "looked_at", "seen_at", "at"),
    [
        (ARMED, 2000.0, 0.0, 1150 + policy.LEASE_DELAY_S),
        (ARMED, 1149.0, 0.0, 1149.0),
        (ARMED, 2000.0, 1200.0, 1200.0),
        (replace(ARMED, meter=replace(BOOTED, absent_at=1100.0)), 2000.0, 0.0, 1100.0),
        (replace(ARMED, meter=replace(BOOTED, given_back_at=1500.0)), 2000.0, 0.0, 1500.0),
        (replace(ARMED, meter=Meter(began_at=140.0)), 2000.0, 0.0, 1140 + policy.LIMIT_SLACK_S),
        (replace(ARMED, meter=Meter()), 9000.0, 0.0, 100 + policy.BOOT_S + 1000 + policy.LIMIT_SLACK_S),
    ],
)
def test_a_machine_that_is_gone_is_charged_until_its_end_or_that_of_its_lease(
    run: Run, looked_at: float, seen_at: float, at: float
) -> None:
    assert policy.released_at(run, 1000.0, looked_at, seen_at) == at


@pytest.mark.parametrize(
    ("run", "ends_at"),
    [
        (ARMED, 1140.0),
        (replace(ARMED, meter=Meter()), 1100.0),
        (RUN, None),
        (replace(ARMED, released_at=500.0), None),
    ],
    ids=["it runs", "it was only rented", "there is none", "it was given back"],
)
def test_a_lease_ends_its_whole_life_after_the_machine_began_to_run(run: Run, ends_at: float | None) -> None:
    lease = Lease(ship_s=60.0, life_s=1000.0, life_cause=Cause.TIME_LIMIT, grace_s=10.0, collect_s=60.0)
    assert policy.lease_ends_at(run, lease) == ends_at


@pytest.mark.parametrize(
    ("nodes", "asked", "free", "least"),
    [
        (1, 500.0, False, 0.0),
        (2, None, False, 1000.0),
        (2, None, True, 0.0),
        (2, 0.0, False, 0.0),
        (2, 50.0, True, 50.0),
    ],
)
def test_the_link_between_nodes_is_measured_where_it_is_paid_for_or_asked_for(
    nodes: int, asked: float | None, free: bool, least: float
) -> None:
    spec = train_job(nodes=nodes, resources=Resources(gpus=2, link_mbps=asked))
    assert policy.link_mbps(spec, free=free) == least


PAID = rtx_4090()
FREE = replace(PAID, usd_per_hour=0.0)
HOUR = Lease(ship_s=900.0, life_s=3600.0, life_cause=Cause.TIME_LIMIT, grace_s=120.0, collect_s=1800.0)


@pytest.mark.parametrize(
    ("limits", "offer", "nodes", "lease"),
    [
        (Limits(hours=1.0), PAID, 1, HOUR),
        (Limits(hours=1.0), FREE, 1, replace(HOUR, collect_s=86_400.0)),
        (Limits(hours=1.0, collect_s=60.0), FREE, 1, replace(HOUR, collect_s=60.0)),
        (Limits(hours=1.0), PAID, 2, replace(HOUR, ship_s=900.0 + 2400)),
        (Limits(hours=0.1), PAID, 1, replace(HOUR, ship_s=360.0, life_s=360.0, grace_s=72.0)),
        (Limits(hours=1.0, usd=0.36), PAID, 1, HOUR),
        (Limits(hours=1.0, usd=0.36), FREE, 1, replace(HOUR, collect_s=86_400.0)),
        (Limits(hours=9.0, usd=0.36), PAID, 1, replace(HOUR, life_cause=Cause.MONEY_LIMIT)),
        (Limits(hours=9.0, usd=0.72), PAID, 2, replace(HOUR, ship_s=3300.0, life_cause=Cause.MONEY_LIMIT)),
    ],
)
def test_a_lease_ends_with_the_hours_or_money(limits: Limits, offer: Offer, nodes: int, lease: Lease) -> None:
    found = policy.lease_of(train_job(limits=limits, nodes=nodes), offer)
    assert replace(found, life_s=lease.life_s) == lease
    assert found.life_s == pytest.approx(lease.life_s)


def test_a_lease_is_told_to_the_machine_in_whole_seconds() -> None:
    assert policy.lease_env(replace(HOUR, life_s=3599.6)) == {
        "LEASE_SHIP_S": "900",
        "LEASE_LIFE_S": "3600",
        "LEASE_LIFE_CAUSE": "time_limit",
        "LEASE_GRACE_S": "120",
        "LEASE_COLLECT_S": "1800",
    }


RENTED = replace(RUN, offer=PAID, usd_per_hour=0.36, rented_at=0.0, meter=Meter(began_at=100.0))


@pytest.mark.parametrize(
    ("usd", "left_s", "is_spent"),
    [
        (None, 0.0, False),
        # The lease lives for an hour, of which it keeps two minutes to save.
        (0.36, 120.0, True),
        (0.36, 121.0, False),
    ],
)
def test_a_training_stops_early_enough_to_save(usd: float | None, left_s: float, is_spent: bool) -> None:
    spec = train_job(limits=Limits(hours=9.0, usd=usd))
    assert policy.is_money_spent(spec, RENTED, left_s) is is_spent
    assert policy.is_money_spent(spec, RUN, left_s) is False, "there is no offer yet"
    # Traffic for the price of six minutes.
    meter = replace(RENTED.meter, down_gb=1.0, extras=ExtraRates(down_usd_per_gb=0.036))
    assert policy.is_money_spent(spec, replace(RENTED, meter=meter), left_s + 360) is is_spent


@pytest.mark.parametrize(
    ("run", "now", "limit"),
    [
        (RENTED, 100.0 + 3600 + 120, None),
        (RENTED, 101.0 + 3600 + 120, Cause.TIME_LIMIT),
        (replace(RENTED, meter=Meter()), 2400.0 + 3600 + 120, None),
        (replace(RENTED, meter=Meter()), 2401.0 + 3600 + 120, Cause.TIME_LIMIT),
        (replace(RENTED, released_at=5000.0), 90_000.0, None),
        (replace(RENTED, offer=None), 90_000.0, None),
        (replace(RENTED, rented_at=None), 90_000.0, None),
    ],
)
def test_a_limit_is_passed_two_minutes_after_the_lease_should_have_acted(
    run: Run, now: float, limit: Cause | None
) -> None:
    assert policy.exceeded_limit(train_job(limits=Limits(hours=1.0)), run, now) is limit


def test_what_a_run_may_cost() -> None:
    def job(nodes: int = 1, **limits: float) -> float:
        return policy.reservation_usd(train_job(limits=Limits(hours=2.0, **limits), nodes=nodes))

    assert (job(usd=3.0), job(usd=3.0, nodes=2), job(usd=3.0, usd_per_hour=9.0)) == (3.0, 3.0, 3.0)
    assert (job(usd_per_hour=0.5), job(usd_per_hour=0.5, nodes=2), job()) == (1.0, 2.0, 0.0)
    dear = replace(PAID, extras=ExtraRates(down_usd_per_gb=0.1, up_usd_per_gb=0.2, storage_usd_per_hour=0.03))
    spec = train_job(limits=Limits(hours=2.0))
    # Besides the hours: 6 GB down, 2 GB up, and the disk while it loads for at most 40 minutes.
    assert policy.worst_case_usd(spec, dear) == pytest.approx(0.72 + 0.6 + 0.4 + 0.02)
    assert policy.worst_case_usd(replace(spec, nodes=2), dear) == pytest.approx(2 * (0.72 + 0.6 + 0.4 + 0.02))
    # One minute of training, and a fifth of the money at most is set aside.
    assert policy.min_usd(PAID) == pytest.approx(0.006)
    assert policy.min_usd(dear) == pytest.approx(0.006 / 0.8)
    assert policy.min_usd(replace(dear, loading_usd=0.5)) == pytest.approx(0.506)


def test_what_may_be_charged_after_the_end_is_set_aside_of_the_money() -> None:
    tailed, tail_usd = replace(PAID, bill_tail_s=300.0), 300 / 3600 * PAID.usd_per_hour
    spec = train_job(limits=Limits(hours=2.0))
    assert policy.worst_case_usd(spec, tailed) == pytest.approx(policy.worst_case_usd(spec, PAID) + tail_usd)
    assert policy.min_usd(tailed) == pytest.approx(policy.min_usd(PAID) + tail_usd)
    limited = train_job(limits=Limits(hours=2.0, usd=0.1))
    lease = policy.lease_of(limited, tailed)
    assert lease.life_s == pytest.approx(policy.lease_of(limited, PAID).life_s - 300)
    assert policy.worst_case_usd(limited, tailed) == pytest.approx(0.1)
    run = replace(RENTED, offer=tailed, usd_per_hour=tailed.usd_per_hour)
    assert policy.is_money_spent(limited, run, lease.grace_s - 1)
    assert not policy.is_money_spent(limited, run, lease.grace_s + 1)
    assert policy.lease_of(train_job(limits=Limits(hours=2.0, usd=0.01)), tailed).life_s == 0


def test_an_offer_is_affordable_up_to_the_job_s_price_and_needs_a_limit_where_it_costs_money() -> None:
    offers = [PAID, FREE, replace(PAID, usd_per_hour=0.37)]
    assert policy.affordable(train_job(limits=Limits(hours=1.0, usd_per_hour=0.36)), offers) == offers[:2]
    assert policy.affordable(train_job(limits=Limits(hours=1.0)), offers) == offers
    limits = (Limits(hours=1.0), Limits(hours=1.0, usd=1.0), Limits(hours=1.0, usd_per_hour=1.0))
    assert [policy.lacks_money_limit(train_job(limits=each), PAID) for each in limits] == [True, False, False]
    assert not policy.lacks_money_limit(train_job(limits=limits[0]), FREE)


def test_a_retry_has_what_the_runs_before_it_left() -> None:
    spec = train_job(limits=Limits(hours=1.0, usd=3.0))
    assert [policy.with_limit(spec, spent).limits.usd for spent in (0.0, 1.0, 2.995, 9.0)] == [
        3.0,
        2.0,
        0.01,
        0.01,
    ]
    unlimited = train_job(limits=Limits(hours=1.0))
    assert policy.with_limit(unlimited, 9.0) == unlimited


def test_polls_are_further_apart_the_more_runs_there_are_and_the_longer_a_queue_takes() -> None:
    assert [policy.poll_interval_s(runs) for runs in (1, 12, 24, 1200)] == [1.0, 1.0, 2.0, 100.0]
    assert [policy.queue_poll_interval_s(waited_s) for waited_s in (0, 10, 20, 300, 9000)] == [
        0.5,
        0.5,
        1.0,
        15.0,
        15.0,
    ]


def test_a_machine_downloads_its_image_and_its_set_up() -> None:
    assert (policy.down_gb(None), policy.down_gb(0.0), policy.down_gb(3.5)) == (6.0, 2.0, 5.5)
