"""Recorded offers: how each is read, what a job's limits leave of a market, and how it is rented there."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from _pytest.mark import ParameterSet

from tests.jobs import train_job
from tests.launcher.providers.vast.recorded import JOBS, OFFERS, RecordedOffer, recorded_offers, whole_offers
from tests.launcher.providers.vast.rows import LOCK, NOW
from vastrun.launcher.core.job import JobSpec, Limits, Resources
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.providers.vast.funnel import funnel
from vastrun.launcher.providers.vast.ranking import rank_offers
from vastrun.launcher.providers.vast.rows import OfferRow

ON_DEMAND, BIDS = recorded_offers(), recorded_offers(bid=True)
OFTEN, RARELY = (SpeedHistory(preemptions_per_hour=100 / (hours + 10)) for hours in (90.0, 9e4))


def job(name: str, gpus: int) -> JobSpec:
    return train_job(resources=Resources(gpus=gpus, gpu_names=(name,), disk_gb=20, interruptible=True))


def test_every_offer_is_read() -> None:
    assert len(ON_DEMAND) == 1343
    assert all(OfferRow.of(row) for row in (*ON_DEMAND, *BIDS))


def test_no_offer_that_has_the_memory_is_taken_for_one_without() -> None:
    having = [row | {"gpu_frac": 0.125} for row in ON_DEMAND if row["cpu_ram"] >= 64_000]
    assert len(having) == 849
    assert all(row is not None and row.memory_gb >= 64 for row in map(OfferRow.of, having))


@pytest.mark.parametrize("row", whole_offers(), ids=lambda row: f"{row['id']:.0f}")
def test_an_offer_that_was_sent_whole_is_read_in_its_units(row: dict[str, Any]) -> None:
    read = OfferRow.of(row)
    assert read is not None
    assert (read.memory_gb, read.gpu_memory_gb) == (row["cpu_ram"] / 1000, row["gpu_ram"] / 1000)
    assert read.extras.storage_usd_per_hour == pytest.approx(row["storage_cost"] * 5 / 720)
    assert read.extras.down_usd_per_gb * 1024 == pytest.approx(row["internet_down_cost_per_tb"])
    assert read.dlperf / read.usd_per_hour == pytest.approx(row["dlperf_per_dphtotal"])
    assert read.usd_per_hour - read.gpu_usd == pytest.approx(read.extras.storage_usd_per_hour)
    assert read.end_date - row["duration"] == pytest.approx(row["seen_at"], abs=60)
    assert read.datacenter is (row["hosting_type"] == 1)
    assert read.country == row["geolocation"][-2:]


def test_the_funnel_says_what_removes_the_others() -> None:
    seen = funnel(ON_DEMAND, job("RTX 4090", 1), LOCK, NOW)
    assert seen.unreadable == 0
    assert sum(limit.removed for limit in seen.removed) + len(seen.left) == 1343
    removed = {limit.name: limit.removed for limit in seen.removed}
    assert removed == {"gpus": 684, "gpu_names": 619, "image": 2, "reliability": 1}


@pytest.mark.parametrize(("name", "gpus"), [("RTX 4090", 1), ("A100 SXM4", 1), ("RTX 5090", 1)])
def test_no_offer_is_bid_for_above_its_price_on_demand(name: str, gpus: int) -> None:
    spec = job(name, gpus)
    prices = {row.id: row.gpu_usd for row in map(OfferRow.of, ON_DEMAND) if row is not None}
    left = funnel([*ON_DEMAND, *BIDS], spec, LOCK, NOW).left
    found = rank_offers(left, spec, LOCK, RARELY)
    assert len({one.offer.id for one in found}) == len(found) > 0
    for one in found:
        assert (one.offer.bid_usd_per_hour or 0.0) <= prices[one.offer.id]


def test_where_machines_are_often_taken_away_none_is_bid_for() -> None:
    spec = job("RTX 4090", 1)
    left = funnel([*ON_DEMAND, *BIDS], spec, LOCK, NOW).left
    bids = [
        sum(one.offer.bid_usd_per_hour is not None for one in rank_offers(left, spec, LOCK, known))
        for known in (OFTEN, RARELY)
    ]
    assert bids[0] < bids[1]


def both_ways(*, on_demand_usd: float, least_bid_usd: float) -> list[OfferRow]:
    """One offer, on demand and to bid for."""
    changes = {"gpu_name": "RTX 4090", "min_bid": least_bid_usd}
    rows = [
        OfferRow.of(row | changes | {"dph_base": price, "dph_total": price})
        for row, price in ((ON_DEMAND[0], on_demand_usd), (BIDS[0], least_bid_usd))
    ]
    return [row for row in rows if row is not None]


def test_an_offer_that_is_rented_on_demand_instead_says_so() -> None:
    rows = both_ways(on_demand_usd=0.4, least_bid_usd=0.5)
    (found,) = rank_offers(rows, job("RTX 4090", 1), LOCK, SpeedHistory())
    assert found.offer.bid_usd_per_hour is None
    assert found.offer.description.endswith("on demand: a bid is expected to cost more")


def test_both_ways_to_rent_an_offer_are_priced() -> None:
    spec = job("RTX 4090", 1)
    rows = both_ways(on_demand_usd=0.4, least_bid_usd=0.2)
    (found,) = rank_offers(rows, spec, LOCK, SpeedHistory())
    assert found.offer.bid_usd_per_hour == pytest.approx(0.24)
    assert found.instead.startswith("The same machine on demand at $0.400/h would cost $")
    on_demand = replace(spec, resources=replace(spec.resources, interruptible=False))
    assert rank_offers(rows[:1], on_demand, LOCK, SpeedHistory())[0].instead == ""


@pytest.mark.parametrize("recorded", OFFERS.values(), ids=OFFERS)
def test_a_recorded_offer_is_read(recorded: RecordedOffer) -> None:
    row = OfferRow.of(recorded.row)
    assert row is not None
    assert {name: getattr(row, name) for name in recorded.fields} == recorded.fields


def verdicts() -> Iterator[ParameterSet]:
    for name, recorded in OFFERS.items():
        for job, fails in recorded.fails.items():
            yield pytest.param(recorded, job, fails, id=f"{name}: {job}")


@pytest.mark.parametrize(("recorded", "job", "fails"), list(verdicts()))
def test_a_recorded_offer_is_left_or_removed_by_the_limits_that_it_fails(
    recorded: RecordedOffer, job: str, fails: tuple[str, ...]
) -> None:
    spec = train_job(resources=Resources(**JOBS[job]), limits=Limits(hours=10))
    seen = funnel([recorded.row], spec, LOCK, recorded.seen_at)
    assert [limit.name for limit in seen.removed] == list(fails[:1])
    assert len(seen.left) == (not fails)
    assert [limit.name for limit in seen.relaxed] == (list(fails) if len(fails) == 1 else [])
