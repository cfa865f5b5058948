"""Which offer finishes the job for the least money: expected cost, part by part."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import Forecast, Offer
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import basis_text, interruption_hours, lost_hours
from vastrun.launcher.decisions.market_report import Term
from vastrun.launcher.decisions.speed_history import SpeedHistory
from vastrun.launcher.image.lock import Lock
from vastrun.launcher.providers.vast.offers import fetched_gb, offer_of
from vastrun.launcher.providers.vast.rows import OfferRow
from vastrun.launcher.providers.vast.speeds import Speeds, speeds_of

_NET_SHARE = 0.25
"""Of the bandwidth that a host lists, what a download was seen to get: a fifth to a half."""
_EQUAL = 1.01
_SLOW_START_RISK = 0.5
"""Risk that a box which needs as long for its image as one may stand still never becomes ready."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What finishing the job on one offer is expected to cost, in dollars."""

    row: OfferRow
    unpriced: Offer
    """Without these sums."""
    forecast: Forecast
    terms: tuple[Term, ...]
    """The parts of the sum, each with where it comes from."""
    loading_usd: float
    instead_text: str = ""
    """The other way to rent the same offer, and what that would cost."""

    @property
    def offer(self) -> Offer:
        """What is on offer, with what the job is expected to cost there."""
        return replace(
            self.unpriced, expected_usd=self.usd, loading_usd=self.loading_usd, forecast=self.forecast
        )

    @property
    def usd(self) -> float:
        """The sum that the ranking sorts by."""
        return sum(term.usd for term in self.terms)


def ranked(rows: Sequence[OfferRow], spec: JobSpec, lock: Lock, known: SpeedHistory) -> list[Estimate]:
    """Return estimates for the rows that the job can pay, the cheapest to finish first.

    Of an offer that can be bid for and rented on demand, the way that is expected to cost less is kept.
    """
    speeds = speeds_of(rows, spec, known)
    on_demand = {row.id: row.gpu_usd for row in rows if not row.is_bid}
    estimates = (_estimate(row, spec, lock, speeds, known, on_demand.get(row.id)) for row in rows)
    in_order = sorted(
        (made for made in estimates if made is not None),
        key=lambda made: (made.usd, -made.row.reliability, made.row.id, made.row.is_bid),
    )
    best: list[Estimate] = []
    places: dict[tuple[str, bool], int] = {}
    for made in in_order:
        cheaper = places.get((made.row.id, not made.row.is_bid))
        if cheaper is None:
            places[made.row.id, made.row.is_bid] = len(best)
            best.append(made)
        else:
            best[cheaper] = replace(best[cheaper], instead_text=_instead(made))
    return best


def _instead(estimate: Estimate) -> str:
    bid, price = estimate.unpriced.bid_usd_per_hour, estimate.unpriced.usd_per_hour
    way = f"on demand at ${price:.3f}/h" if bid is None else f"by a bid, ${price:.3f}/h with its disk,"
    return f"The same machine {way} would cost ${estimate.usd:.2f} to finish."


def shuffled(estimates: Sequence[Estimate], chance: random.Random) -> list[Estimate]:
    """Mix those that cost as good as the same: many launches must not want one. Else the order stays."""
    left, found = list(estimates), []
    while left:
        equals = [one for one in left if one is left[0] or one.usd <= left[0].usd * _EQUAL]
        left = left[len(equals) :]
        found += chance.sample(equals, len(equals))
    return found


def _estimate(
    row: OfferRow, spec: JobSpec, lock: Lock, speeds: Speeds, known: SpeedHistory, on_demand_usd: float | None
) -> Estimate | None:
    offer = offer_of(row, spec, lock, on_demand_usd=on_demand_usd)
    if offer is None:
        return None
    price, extras = offer.usd_per_hour, row.extras
    down_gb = policy.down_gb(fetched_gb(row, spec, lock))
    fetch_hours, fetch_text = _download_estimate(row, down_gb, known)
    forecast = speeds.forecast(row, fetch_hours * 3600 + policy.START_S)
    train_hours = forecast.train_s / 3600
    train_usd = (price - extras.storage_usd_per_hour) * train_hours
    storage_usd = extras.storage_usd_per_hour * train_hours
    fetch_usd = price * fetch_hours  # at the full price: waiting is not free
    traffic_usd = down_gb * extras.down_usd_per_gb + policy.UP_GB * extras.up_usd_per_gb
    risks = _risks(row, fetch_hours)
    again = _again_hours(offer, spec, forecast, fetch_hours, known)
    risk_usd = min(1.0, sum(risks.values())) * (train_usd + storage_usd + fetch_usd) + again * price
    parts = [f"{name} {risk:.1%}" for name, risk in risks.items() if risk > 0]
    if again:
        parts.append(f"{again:.1f} h more for interruptions, {known.bids.per_hour:.2f} per hour expected")
    terms = (
        ("GPU", train_usd, f"{train_hours:.1f} h at {_speed_text(row, forecast, spec)}"),
        ("disk", storage_usd, f"${extras.storage_usd_per_hour:.4f}/h"),
        ("fetch", fetch_usd, f"{fetch_hours * 60:.0f} min {fetch_text}"),
        ("traffic", traffic_usd, f"${extras.down_usd_per_gb:.4f}/GB to fetch"),
        ("risk", risk_usd, ", ".join(parts)),
    )
    return Estimate(
        row=row,
        unpriced=offer,
        forecast=forecast,
        terms=tuple(Term(name=name, usd=usd, text=text) for name, usd, text in terms),
        loading_usd=extras.storage_usd_per_hour * fetch_hours + down_gb * extras.down_usd_per_gb,
    )


def _speed_text(row: OfferRow, forecast: Forecast, spec: JobSpec) -> str:
    if spec.resources.gpus == 0 and not forecast.steps_per_s:
        return "the most it may take"
    pace = f"{forecast.steps_per_s:.3g} steps/s" if forecast.steps_per_s else f"dlperf {row.dlperf:.0f}"
    return f"{pace}, {basis_text(forecast)}"


def _download_estimate(row: OfferRow, down_gb: float, known: SpeedHistory) -> tuple[float, str]:
    """Hours until the image and the data are there, and how that is known."""
    boot_s = known.boot_s.get(row.machine_id)
    if boot_s is not None:
        return boot_s / 3600, "as it took before"
    hours = down_gb * 8000 / max(1.0, row.down_mbps * _NET_SHARE) / 3600
    return hours, f"for {down_gb:.1f} GB at {row.down_mbps:.0f} Mbit/s"


def _again_hours(
    offer: Offer, spec: JobSpec, forecast: Forecast, fetch_hours: float, known: SpeedHistory
) -> float:
    """Hours that are paid once more because somebody else is given the machine; 0 on demand."""
    if offer.bid_usd_per_hour is None:
        return 0.0
    start_hours = fetch_hours + policy.START_S / 3600
    lost = lost_hours(spec, forecast.steps_per_s)
    return interruption_hours(forecast.train_s / 3600, known.bids.per_hour, start_hours, lost)


def _risks(row: OfferRow, fetch_hours: float) -> Mapping[str, float]:
    """Chances that the work has to be paid for once more."""
    return {
        "failure": max(0.0, 1.0 - row.reliability),  # a market that tells it in percent must not pay us
        "slow start": min(1.0, fetch_hours * 3600 / policy.NO_PROGRESS_S) ** 2 * _SLOW_START_RISK,
    }
