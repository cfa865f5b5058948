"""Ranking of offers by the expected cost of the whole job, with the parts of the cost."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from vastrun.launcher.core import Forecast, Offer
from vastrun.launcher.core.bills import MAX_TAIL_S
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import Basis
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import (
    Quote,
    Term,
    basis_text,
    data_usd,
    interruption_hours,
    lost_hours,
)
from vastrun.launcher.decisions.history import MachineKind, SpeedHistory, kind_text
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.decisions.workload import roofline
from vastrun.launcher.image.lock import Lock
from vastrun.launcher.providers.vast.offers import image_size_gb, make_offer
from vastrun.launcher.providers.vast.rows import OfferRow

_BANDWIDTH_SHARE = 0.25
"""Share of a host's listed bandwidth that downloads reach: a fifth to a half was measured."""
_SLOW_START_RISK = 0.5
"""Risk of a failed start for a box whose download takes as long as the no-progress limit."""


def rank_offers(rows: Sequence[OfferRow], spec: JobSpec, lock: Lock, known: SpeedHistory) -> list[Quote]:
    """Return quotes for the rows within the job's price limits, lowest expected cost first.

    For an offer both on demand and for bids, the cheaper way is kept.
    """
    speeds = Speeds(rows, spec, known)
    on_demand = {row.id: row.gpu_usd for row in rows if not row.is_bid}
    made = ((row, _quote(row, spec, lock, speeds, known, on_demand.get(row.id))) for row in rows)
    quotes = [(row, quote) for row, quote in made if quote is not None]
    # Equal costs in the order of ids, not of Vast's answer: `shuffle_equals` then draws the same order again.
    quotes.sort(key=lambda pair: (pair[1].usd, -pair[0].reliability, pair[0].id, pair[0].is_bid))
    best: list[Quote] = []
    places: dict[tuple[str, bool], int] = {}
    for row, quote in quotes:
        cheaper = places.get((row.id, not row.is_bid))
        if cheaper is None:
            places[row.id, row.is_bid] = len(best)
            best.append(quote)
        else:
            best[cheaper] = replace(best[cheaper], instead=_instead(quote))
    return best


def _instead(quote: Quote) -> str:
    bid, price = quote.offer.bid_usd_per_hour, quote.offer.usd_per_hour
    way = f"on demand at ${price:.3f}/h" if bid is None else f"by a bid, ${price:.3f}/h with its disk,"
    return f"The same machine {way} would cost ${quote.usd:.2f} to finish."


def shuffle_equals(quotes: Sequence[Quote], rng: random.Random) -> list[Quote]:
    """Shuffle offers of nearly equal cost, so that concurrent launches do not order the same one."""
    left, found = list(quotes), []
    while left:
        equals = [one for one in left if one is left[0] or one.usd <= left[0].usd * 1.01]
        left = left[len(equals) :]
        found += rng.sample(equals, len(equals))
    return found


def _quote(
    row: OfferRow, spec: JobSpec, lock: Lock, speeds: Speeds, known: SpeedHistory, on_demand_usd: float | None
) -> Quote | None:
    offer = make_offer(row, spec, lock, on_demand_usd=on_demand_usd)
    if offer is None:
        return None
    price, extras = offer.usd_per_hour, row.extras
    down_gb = policy.down_gb(image_size_gb(row, spec, lock))
    fetch_hours, fetch_text = _download_estimate(row, down_gb, known)
    sent_s = spec.sent_gb * spec.nodes * 8000 / known.up_mbps
    data_hours = _download_hours(row, spec.data_gb - spec.sent_gb) + sent_s / 3600
    start_hours = fetch_hours + data_hours + policy.START_S / 3600
    forecast = speeds.forecast(row, start_hours * 3600)
    train_hours = forecast.train_s / 3600
    train_usd = (price - extras.storage_usd_per_hour) * train_hours
    storage_usd = extras.storage_usd_per_hour * train_hours
    fetch_usd = price * fetch_hours  # at the full price: waiting is not free
    traffic_usd = down_gb * extras.down_usd_per_gb + policy.UP_GB * extras.up_usd_per_gb
    download_usd = data_usd(offer, data_hours * 3600, spec.data_gb)
    # Probabilities that the work must be repeated; reliability in percent would give a negative cost.
    risks = {
        "failure": max(0.0, 1.0 - row.reliability),
        "slow start": min(1.0, fetch_hours * 3600 / policy.NO_PROGRESS_S) ** 2 * _SLOW_START_RISK,
    }
    again = _repeat_hours(offer, spec, forecast, start_hours, known)
    risk_usd = (
        min(1.0, sum(risks.values())) * (train_usd + storage_usd + fetch_usd + download_usd) + again * price
    )
    parts = [f"{name} {risk:.1%}" for name, risk in risks.items() if risk > 0]
    if again:
        parts.append(
            f"{again:.1f} h more for interruptions, {known.preemptions_per_hour:.2f} per hour expected"
        )
    terms = (
        ("GPU", train_usd, f"{train_hours:.1f} h at {_speed_text(row, forecast, spec)}"),
        ("disk", storage_usd, f"${extras.storage_usd_per_hour:.4f}/h"),
        ("fetch", fetch_usd, f"{fetch_hours * 60:.0f} min {fetch_text}"),
        ("traffic", traffic_usd, f"${extras.down_usd_per_gb:.4f}/GB to fetch"),
        *(
            [("data", download_usd, f"{data_hours * 60:.0f} min for {spec.data_gb:.3g} GB")]
            if spec.data
            else []
        ),
        ("risk", risk_usd, ", ".join(parts)),
    )
    offer = replace(
        offer,
        expected_usd=sum(usd for _, usd, _ in terms),
        loading_usd=extras.storage_usd_per_hour * fetch_hours
        + down_gb * extras.down_usd_per_gb
        + download_usd,
        data_s=data_hours * 3600,
        sent_s=sent_s,
        bucket_s=_download_hours(row, spec.sent_gb) * 3600,
        bill_tail_s=min(MAX_TAIL_S, known.bill_tail_s),
        forecast=forecast,
    )
    return Quote(offer=offer, terms=tuple(Term(name=name, usd=usd, text=text) for name, usd, text in terms))


def _speed_text(row: OfferRow, forecast: Forecast, spec: JobSpec) -> str:
    if spec.resources.gpus == 0 and not forecast.steps_per_s:
        return "the most it may take"
    pace = f"{forecast.steps_per_s:.3g} steps/s" if forecast.steps_per_s else f"dlperf {row.dlperf:.0f}"
    return f"{pace}, {basis_text(forecast)}"


def _download_estimate(row: OfferRow, down_gb: float, known: SpeedHistory) -> tuple[float, str]:
    """Return the hours for the download of image and data, and the basis of the estimate."""
    boot_s = known.boot_s.get(row.machine_id)
    if boot_s is not None:
        return boot_s / 3600, "as it took before"
    return _download_hours(row, down_gb), f"for {down_gb:.1f} GB at {row.down_mbps:.0f} Mbit/s"


def _download_hours(row: OfferRow, gb: float) -> float:
    return gb * 8000 / max(1.0, row.down_mbps * _BANDWIDTH_SHARE) / 3600


def _repeat_hours(
    offer: Offer, spec: JobSpec, forecast: Forecast, start_hours: float, known: SpeedHistory
) -> float:
    """Return the hours that interruptions by higher bids repeat; 0 on demand."""
    if offer.bid_usd_per_hour is None:
        return 0.0
    lost = lost_hours(spec, forecast.steps_per_s)
    return interruption_hours(forecast.train_s / 3600, known.preemptions_per_hour, start_hours, lost)


@dataclass(frozen=True)
class _Pace:
    """Steps per second on an offer, and the basis of the number."""

    steps_per_s: float
    basis: Basis
    runs: int
    source: str = ""


class Speeds:
    """Speed estimates for a set of offers; earlier runs calibrate Vast's scores."""

    def __init__(self, rows: Sequence[OfferRow], spec: JobSpec, known: SpeedHistory) -> None:
        self.spec, self.known = spec, known
        scored = [row for row in rows if row.dlperf > 0]
        self.typical_dlperf = median([row.dlperf for row in scored] or [1.0])
        scores: dict[MachineKind, list[float]] = {}
        for row in scored:
            scores.setdefault((row.gpu_name, row.gpus), []).append(row.dlperf)
        self.dlperf = {kind: median(found) for kind, found in scores.items()}
        """Vast's score by kind of machine, for kinds that have one."""

    def forecast(self, row: OfferRow, ready_s: float) -> Forecast:
        """Estimate the job's time on that offer, which is ready to train `ready_s` after the rental.

        A job that says no last step takes its whole time limit where the typical machine is had, and so does
        one of whose speed nothing is known. One without GPUs is as fast with any of them.
        """
        limit_s, steps = self.spec.limits.hours * 3600, steps_of(self.spec)
        pace = self._pace(row) if self.spec.resources.gpus else self._pace_anywhere()
        if pace is None or steps is None:
            return Forecast(
                ready_s=ready_s,
                train_s=limit_s / self._share_of_typical(row, pace),
                basis="guess",
                steps_per_s=None if pace is None else pace.steps_per_s,
            )
        return Forecast(ready_s=ready_s, train_s=steps / pace.steps_per_s, **vars(pace))

    def _pace(self, row: OfferRow) -> _Pace | None:
        """Return the measured speed; else scale it by the number of GPUs, else by Vast's score."""
        kind = (row.gpu_name, row.gpus)
        if kind in self.known.speeds:
            speed = self.known.speeds[kind]
            return _Pace(speed.steps_per_s, "measured", speed.runs)
        same_gpu = [other for other in self.known.speeds if other[0] == row.gpu_name and other[1] > 0]
        if same_gpu:
            nearest = min(same_gpu, key=lambda other: _ratio(other[1], row.gpus))
            return self._scaled(nearest, row.gpus / nearest[1])
        scored = [other for other in self.known.speeds if other in self.dlperf]
        if scored and row.dlperf > 0:
            nearest = min(scored, key=lambda other: _ratio(self.dlperf[other], row.dlperf))
            return self._scaled(nearest, row.dlperf / self.dlperf[nearest])
        workloads = self.known.workloads
        if workloads is None:
            return None
        found = roofline(workloads, self.spec, row.gpu_name, row.gpu_memory_gb, self.known.efficiency)
        if found is None:
            return None
        share = f"{found.mfu:.0%}" if found.mfu >= 0.01 else "under 1%"
        return _Pace(found.steps_per_s, "roofline", 0, f"{share} of its peak")

    def _pace_anywhere(self) -> _Pace | None:
        """Return the mean measured speed on all kinds of machines; None without measurements."""
        known = self.known.speeds.values()
        if not known:
            return None
        seen = median(speed.steps_per_s for speed in known)
        return _Pace(seen, "measured", sum(speed.runs for speed in known))

    def _scaled(self, kind: MachineKind, factor: float) -> _Pace:
        speed = self.known.speeds[kind]
        return _Pace(speed.steps_per_s * factor, "scaled", speed.runs, kind_text(kind))

    def _share_of_typical(self, row: OfferRow, pace: _Pace | None) -> float:
        """Return the offer's speed relative to a typical one: by its pace if known, else by its score."""
        if self.spec.resources.gpus == 0:
            return 1.0
        ratios = [
            self.known.speeds[kind].steps_per_s / score
            for kind, score in self.dlperf.items()
            if kind in self.known.speeds
        ]
        if pace is not None and ratios:
            return pace.steps_per_s / (median(ratios) * self.typical_dlperf)
        # There is a reason why an offer has no score.
        return (row.dlperf or self.typical_dlperf / 2) / self.typical_dlperf


def _ratio(one: float, other: float) -> float:
    """Return the ratio of the larger to the smaller number."""
    return abs(math.log(one / other))
