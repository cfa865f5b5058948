"""Hold size: how long a machine is held for the points of a batch, and whether that pays off. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from vastrun.launcher.core import ExtraRates, Offer
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.placement import replacement_cost_usd
from vastrun.launcher.decisions.policy import START_S, lease_of, worst_case_usd
from vastrun.launcher.decisions.pool import MIN_LEFT_S, hold_spec

HANDOVER_S = 10.0
"""Seconds between two runs on one slot: the first is removed, the machine checked, the next one uploaded."""
_SLOT_ENDS_S = 60.0
"""Seconds by which a slot ends before its machine."""
_FIRST_SLOT_S = 120.0
"""Seconds from the lease of a held machine until its first slot exists."""
_SAFETY_FACTOR = 1.5
"""Factor by which runs may take longer than expected before the machine's time is too short."""
_MAX_HOURS = 168.0
IDLE_S = 300.0
"""Seconds without a slot after which a held machine ends: the batch's driver may be dead."""


@dataclass(frozen=True, kw_only=True)
class HoldSize:
    """Size and limits of a machine to be held for the points of a batch."""

    slots: int
    """Number of concurrent points."""
    hours: float
    usd: float | None
    """Max. cost in USD, in whole cents; None: it is free."""


def life_s(job: JobSpec, usd_per_hour: float) -> float:
    """Return the max. seconds of a run of the job on a share of a machine at this price, by its own
    limits."""
    share = Offer(
        id="",
        host="",
        gpu_name=None,
        gpus=0,
        gpu_memory_gb=0.0,
        disk_gb=0.0,
        usd_per_hour=usd_per_hour,
        description="",
        extras=ExtraRates(),
    )
    return lease_of(job, share).life_s


def needed_s(job: JobSpec, usd_per_hour: float) -> float:
    """Return the seconds for which a machine must last for a run of the job, by its own limits."""
    return max(MIN_LEFT_S, life_s(job, usd_per_hour) + _SLOT_ENDS_S)


def expected_s(job: JobSpec, offer: Offer, measured_s: Sequence[float]) -> float:
    """Return the expected seconds of a run of the job there, once the machine is ready.

    `measured_s`: durations of other points of the batch. Without any, the offer's forecast; without that,
    all of the time that the job's limits allow.
    """
    max_s = life_s(job, offer.usd_per_hour)
    if measured_s:
        return min(max_s, median(measured_s))
    if offer.forecast is not None:
        return min(max_s, offer.forecast.train_s)
    if offer.expected_usd and offer.usd_per_hour:
        return min(max_s, (offer.expected_usd - offer.loading_usd) / offer.usd_per_hour * 3600)
    return max_s


def pays_off(offer: Offer, *, rounds: int, seconds: float) -> bool:
    """Return whether `rounds` points one after the other cost less on this machine than on one each.

    Each machine costs money before it trains; a held one costs money between two points, too.
    """
    another = replacement_cost_usd(offer, boot_s=START_S, data_s=0.0)
    each_usd = offer.usd_per_hour * seconds / 3600
    handover_usd = offer.usd_per_hour * HANDOVER_S / 3600
    return rounds > 1 and another + rounds * (each_usd + handover_usd) <= rounds * (another + each_usd)


def choose_hold_size(
    job: JobSpec, offer: Offer, *, slots: int, rounds: int, seconds: float, max_usd: float
) -> HoldSize | None:
    """Return the size for `rounds` points on each slot; None: `max_usd` does not cover even one.

    `seconds`: expected duration of a point. The last one may still take all that its limits allow. With
    too little money for all, fewer are planned; what is not spent is released at the end.
    """
    price = offer.usd_per_hour
    first_s = _FIRST_SLOT_S + needed_s(job, price / slots)
    all_s = first_s + (rounds - 1) * (seconds * _SAFETY_FACTOR + HANDOVER_S)
    hours = min(all_s / 3600, max(first_s / 3600, _MAX_HOURS))
    if not price:
        return HoldSize(slots=slots, hours=hours, usd=None)
    min_usd, usd = (_worst_usd(job, offer, slots, one) for one in (first_s / 3600, hours))
    if min_usd > max_usd:
        return None
    if usd > max_usd:
        usd = math.floor(max_usd * 100) / 100
        hours = max(first_s / 3600, hours - (_worst_usd(job, offer, slots, hours) - usd) / price)
    return HoldSize(slots=slots, hours=hours, usd=max(min_usd, usd))


def _worst_usd(job: JobSpec, offer: Offer, slots: int, hours: float) -> float:
    spec = hold_spec(job, slots=slots, hours=hours, usd=None, idle_s=IDLE_S)
    return math.ceil(worst_case_usd(spec, offer) * 100) / 100
