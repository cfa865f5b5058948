"""A machine that was outbid is kept by a higher bid where that is expected to cost less than another one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.jobs import train_job
from tests.launcher.providers.vast.recorded_market import recorded_offers
from tests.launcher.providers.vast.rows import LOCK, NOW
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import ExtraRates, Forecast, Meter, Offer, Phase, Run
from vastrun.launcher.core.job import Checkpoints, JobSpec, Limits, Resources, Success
from vastrun.launcher.decisions.bids import bid_above, offer_at_raised_bid
from vastrun.launcher.decisions.history import BidHistory, Speed, SpeedHistory
from vastrun.launcher.providers.vast.funnel import funnel
from vastrun.launcher.providers.vast.ranking import rank_offers

HOUR_S = 3600.0
RATE = 0.02
"""Interruptions per hour."""
TEN_HOURS = JobSpec(
    name="ten-hours",
    command=("python", "train.py"),
    ranks=1,
    resources=Resources(gpus=1, gpu_names=("RTX 4090",), disk_gb=20, interruptible=True),
    limits=Limits(hours=24, usd=50.0),
    checkpoints=Checkpoints(files="checkpoints/*", every_s=720),
    success=Success(steps=36_000),
)
KNOWN = SpeedHistory(
    speeds={("RTX 4090", 1): Speed(steps_per_s=1.0, runs=3)},
    bids=BidHistory(hours=1e6, preemptions=round(RATE * 1e6)),
)


def market(spec: JobSpec = TEN_HOURS) -> Sequence[Offer]:
    """The recorded offers, lowest expected cost first."""
    rows = [row for bid in (False, True) for row in recorded_offers(bid=bid) if row["min_bid"]]
    return [quote.offer for quote in rank_offers(funnel(rows, spec, LOCK, NOW).left, spec, LOCK, KNOWN)]


def outbid_run(offer: Offer, *, spec: JobSpec = TEN_HOURS, age_s: float = 5 * HOUR_S) -> Run:
    """A run that has trained on that machine for so long at its bid."""
    return a_run(
        job=spec.name,
        spec_json=dump_job(spec),
        provider="vast",
        phase=Phase.TRAIN,
        created_at=NOW - age_s,
        offer=offer,
        host=offer.host,
        usd_per_hour=offer.usd_per_hour,
        rented_at=NOW - age_s,
        meter=Meter(extras=offer.extras, began_at=NOW - age_s, armed_at=NOW - age_s),
        steps_per_s=1.0,
    )


def raised(
    run: Run, lowest_usd: float, others: Sequence[Offer], *, left: float = 0.5, spec: JobSpec = TEN_HOURS
) -> Offer | None:
    return offer_at_raised_bid(spec, run, lowest_usd, others, interruptions_per_hour=RATE, left=left, now=NOW)


@pytest.fixture(scope="module")
def offers() -> Sequence[Offer]:
    return market()


@pytest.fixture
def bid(offers: Sequence[Offer]) -> Offer:
    return next(offer for offer in offers if offer.bid_usd_per_hour is not None)


def test_in_a_recorded_market_a_little_more_is_paid_not_much(offers: Sequence[Offer], bid: Offer) -> None:
    others, run = [offer for offer in offers if offer.host != bid.host], outbid_run(bid)
    former = bid.bid_usd_per_hour or 0.0
    kept = {factor: raised(run, factor * former, others) for factor in (1.0, 1.5, 2.0, 4.0)}
    assert (kept[1.0] is not None, kept[4.0]) == (True, None)
    prices = [factor for factor, offer in kept.items() if offer is not None]
    assert prices == sorted(kept)[: len(prices)], "what is too dear is so at each higher price"
    assert kept[1.0] is not None
    assert kept[1.0].bid_usd_per_hour == pytest.approx(1.2 * former, abs=1e-4)
    assert kept[1.0].usd_per_hour == pytest.approx(1.2 * former + bid.extras.storage_usd_per_hour, abs=1e-4)


def test_near_its_end_a_training_pays_more_than_at_its_beginning(offers: Sequence[Offer], bid: Offer) -> None:
    others, run = [offer for offer in offers if offer.host != bid.host], outbid_run(bid)
    former = bid.bid_usd_per_hour or 0.0
    factors = [1.0 + 0.05 * n for n in range(40)]
    limits = [
        max((f for f in factors if raised(run, f * former, others, left=left)), default=0.0)
        for left in (1.0, 0.5, 0.1, 0.01)
    ]
    # Times the margin of a bid: the figures of docs/cost.md.
    assert limits == pytest.approx([0.0, 1.05, 1.4, 1.55])


def test_what_nobody_else_offers_is_kept_at_any_price_within_the_limits(bid: Offer) -> None:
    former = bid.bid_usd_per_hour or 0.0
    assert raised(outbid_run(bid), 4 * former, []) is not None
    capped = replace(TEN_HOURS, limits=replace(TEN_HOURS.limits, usd_per_hour=2 * former))
    assert raised(outbid_run(bid), 4 * former, [], spec=capped) is None


def test_a_program_that_saves_nothing_begins_again_as_such(offers: Sequence[Offer], bid: Offer) -> None:
    others, lowest = (
        [offer for offer in offers if offer.host != bid.host],
        1.1 * (bid.bid_usd_per_hour or 0.0),
    )
    nothing = replace(TEN_HOURS, checkpoints=Checkpoints())
    assert raised(outbid_run(bid), lowest, others, left=0.01) is not None
    assert raised(outbid_run(bid), lowest, others, left=0.01, spec=nothing) is None


OFFER = rtx_4090(
    usd_per_hour=1.1,
    bid_usd_per_hour=1.0,
    extras=ExtraRates(storage_usd_per_hour=0.1),
    forecast=Forecast(ready_s=300.0, train_s=HOUR_S, basis="measured", runs=3),
)
JOB = train_job(limits=Limits(hours=2.0, usd=3.0))


@pytest.mark.parametrize(
    ("offer", "lowest_usd"),
    [(replace(OFFER, bid_usd_per_hour=None), 1.0), (OFFER, 0.0), (OFFER, 0.8), (OFFER, -1.0)],
    ids=["on demand", "unknown", "it should win", "nonsense"],
)
def test_without_a_lowest_bid_above_its_own_nothing_is_raised(offer: Offer, lowest_usd: float) -> None:
    assert raised(outbid_run(offer, spec=JOB, age_s=60.0), lowest_usd, [], spec=JOB) is None


@pytest.mark.parametrize(
    ("limits", "age_s", "is_kept"),
    [
        (Limits(hours=2.0, usd=3.0), 60.0, True),
        (Limits(hours=2.0, usd=3.0), 2 * HOUR_S - 170, False),
        (Limits(hours=2.0, usd=2.2), 1.8 * HOUR_S, False),
        (Limits(hours=2.0, usd=0.6), 60.0, False),
        (Limits(hours=2.0, usd=3.0, usd_per_hour=1.4), 60.0, True),
        (Limits(hours=2.0, usd=3.0, usd_per_hour=1.2), 60.0, False),
        (Limits(hours=2.0, usd_per_hour=1.5), 60.0, True),
        (Limits(hours=2.0, usd=1.2, collect_s=2 * HOUR_S), 60.0, False),
        (Limits(hours=2.0, usd=1.2, collect_s=600.0), 60.0, True),
    ],
)
def test_no_limit_is_passed(limits: Limits, age_s: float, is_kept: bool) -> None:
    spec = replace(JOB, limits=limits)
    found = raised(outbid_run(OFFER, spec=spec, age_s=age_s), 1.1, [], spec=spec)
    assert (found is not None) is is_kept


def test_a_bid_is_above_the_lowest_by_a_margin_and_within_its_caps() -> None:
    assert bid_above(0.5) == 0.6
    assert bid_above(0.5, None, 0.55) == 0.55
    assert bid_above(0.5, 0.52) is None
    assert bid_above(0.0) is None
    assert bid_above(0.33333) == 0.3999
