"""Hold size: how long a machine is held for the points of a batch, and whether that pays. Pure."""

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
"""Between two runs on one slot: the first is removed, the machine proven clean, the next one shipped."""
_SLOT_ENDS_S = 60.0
"""A slot ends before its machine does."""
_FIRST_SLOT_S = 120.0
"""From the lease of a machine that is held until its first slot is there."""
_SAFETY_FACTOR = 1.5
"""So much longer than expected the runs may take for the machine to last for all of them."""
_MAX_HOURS = 168.0
IDLE_S = 300.0
"""A machine that a batch holds ends by itself when it had no slot for so long: its driver may be dead."""


@dataclass(frozen=True, kw_only=True)
class HoldSize:
    """A machine to be held for the points of a batch."""

    slots: int
    """So many points at once."""
    hours: float
    usd: float | None
    """The most that it may cost, in whole cents; None: it is free."""


def life_s(job: JobSpec, usd_per_hour: float) -> float:
    """Return how long a run of the job may take on a share of a machine at this price, by its own limits."""
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
    """Return how long a machine must last for a run of the job: all that its limits allow fits in."""
    return max(MIN_LEFT_S, life_s(job, usd_per_hour) + _SLOT_ENDS_S)


def expected_s(job: JobSpec, offer: Offer, measured_s: Sequence[float]) -> float:
    """Return how long a run of the job is expected to take there, once its machine is there.

    `measured_s`: what other points of the batch took. Without any, what the offer's price was made of; nobody
    knows more of a job than that it may take all of its time.
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
    """Tell whether `rounds` points one after the other cost less on this machine than on one each.

    Each machine is paid for before it trains; between two points a held one is paid for, too.
    """
    another = replacement_cost_usd(offer, boot_s=START_S, data_s=0.0)
    each_usd = offer.usd_per_hour * seconds / 3600
    handover_usd = offer.usd_per_hour * HANDOVER_S / 3600
    return rounds > 1 and another + rounds * (each_usd + handover_usd) <= rounds * (another + each_usd)


def choose_hold_size(
    job: JobSpec, offer: Offer, *, slots: int, rounds: int, seconds: float, max_usd: float
) -> HoldSize | None:
    """Return how long the machine is held for so many points on each slot; None: not even one fits the money.

    `seconds`: what a point is expected to take. The last one may still take all that its limits allow, and
    with less money than for all of them fewer are to come: what is not needed is free again at the end.
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
