"""Which offer finishes the job for the least money: expected cost, part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from launcher import policy
from launcher.job import JobSpec
from launcher.providers.vast.offers import offer_of
from launcher.providers.vast.rows import OfferRow
from launcher.survey import Term

_NET_SHARE = 0.25
"""Of the bandwidth that a host lists, what a download was seen to get: a fifth to a half."""
_PREEMPTION_RISK = 0.2
_SLOW_BOOT_RISK = 0.5
"""Risk that a box which needs the whole time limit for its image never becomes ready."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What finishing the job on one offer is expected to cost, in dollars."""

    row: OfferRow
    usd_per_hour: float
    train_hours: float
    fetch_hours: float
    train_usd: float
    storage_usd: float
    fetch_usd: float
    """The time in which the image and the data are fetched, at the full price: waiting is not free."""
    bandwidth_usd: float
    risk_usd: float

    @property
    def terms(self) -> tuple[Term, ...]:
        """The parts of the sum, each with where it comes from."""
        row, minutes = self.row, self.fetch_hours * 60
        return (
            Term(name="GPU", usd=self.train_usd, text=f"{self.train_hours:.1f} h at dlperf {row.dlperf:.0f}"),
            Term(name="disk", usd=self.storage_usd, text=f"${row.extras.storage_usd_per_hour:.4f}/h"),
            Term(name="fetch", usd=self.fetch_usd, text=f"{minutes:.0f} min at {row.down_mbps:.0f} Mbit/s"),
            Term(
                name="traffic", usd=self.bandwidth_usd, text=f"${row.extras.down_usd_per_gb:.4f}/GB to fetch"
            ),
            Term(name="risk", usd=self.risk_usd, text=f"reliability {row.reliability:.1%}"),
        )

    @property
    def usd(self) -> float:
        """The sum that the ranking sorts by."""
        return sum(term.usd for term in self.terms)


def ranked(rows: Sequence[OfferRow], spec: JobSpec) -> list[Estimate]:
    """Estimates for the rows that the job can pay, the cheapest to finish first."""
    typical = median([row.dlperf for row in rows if row.dlperf > 0] or [1.0])
    estimates = (estimate(row, spec, typical_dlperf=typical) for row in rows)
    return sorted(
        (made for made in estimates if made is not None),
        key=lambda made: (made.usd, -made.row.reliability, made.row.id),
    )


def estimate(row: OfferRow, spec: JobSpec, *, typical_dlperf: float) -> Estimate | None:
    """The expected cost, for a job that takes its whole time limit where `typical_dlperf` is had."""
    offer = offer_of(row, spec)
    if offer is None:
        return None
    price = offer.usd_per_hour
    train_hours = spec.limits.hours * _slowness(row, spec, typical_dlperf)
    fetch_hours = policy.DOWN_GB * 8000 / max(1.0, row.down_mbps * _NET_SHARE) / 3600
    train_usd = (price - row.extras.storage_usd_per_hour) * train_hours
    storage_usd = row.extras.storage_usd_per_hour * train_hours
    fetch_usd = price * fetch_hours
    return Estimate(
        row=row,
        usd_per_hour=price,
        train_hours=train_hours,
        fetch_hours=fetch_hours,
        train_usd=train_usd,
        storage_usd=storage_usd,
        fetch_usd=fetch_usd,
        bandwidth_usd=policy.DOWN_GB * row.extras.down_usd_per_gb + policy.UP_GB * row.extras.up_usd_per_gb,
        risk_usd=_risk(row, spec, fetch_hours) * (train_usd + storage_usd + fetch_usd),
    )


def _slowness(row: OfferRow, spec: JobSpec, typical_dlperf: float) -> float:
    """How much longer than on a typical offer. A job without GPUs gains nothing by a faster one.

    An offer without a score counts as half as fast: there is a reason why it has none.
    """
    if spec.resources.gpus == 0:
        return 1.0
    return typical_dlperf / (row.dlperf or typical_dlperf / 2)


def _risk(row: OfferRow, spec: JobSpec, fetch_hours: float) -> float:
    """Chance that the work has to be paid for once more."""
    slow_boot = min(1.0, fetch_hours * 3600 / policy.BOOT_S) ** 2 * _SLOW_BOOT_RISK
    preemption = _PREEMPTION_RISK if spec.resources.interruptible else 0.0
    return min(1.0, (1.0 - row.reliability) + slow_boot + preemption)
