"""Placement: a warm slot or a new machine for a point, the size of a held machine, the cheapest fleet, and
when a machine is destroyed. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from vastrun.launcher.core import Offer
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.policy import START_S, share_usd, worst_case_usd
from vastrun.launcher.pool.held_machines import GIVE_BACK_S, MIN_LEFT_S, hold_spec

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
class WarmSlot:
    """A free slot of a held machine."""

    offer: Offer
    """Offer of the provider `pool`, at the price of the slot's share."""
    machine_usd_per_hour: float
    """USD per hour of the whole machine."""
    busy_s: float = 0.0
    """Seconds for which other runs keep the machine, as far as known."""


def place_point(
    seconds: float, slots: Iterable[WarmSlot], offers: Iterable[Offer], *, is_shared: bool
) -> WarmSlot | None:
    """Return the slot on which a point of that duration costs least; None: a new machine costs less.

    `is_shared`: more points wait than there are free slots, so that all of a machine's price is shared. The
    slot wins a tie: it is ready at once.
    """
    costs = [
        (_slot_usd(slot, seconds, is_shared=is_shared), number, slot) for number, slot in enumerate(slots)
    ]
    usd, _, slot = min(costs, default=(math.inf, 0, None))
    return slot if all(usd <= machine_usd(offer, seconds) for offer in offers) else None


def _slot_usd(slot: WarmSlot, seconds: float, *, is_shared: bool) -> float:
    """Return the cost of the slot: while no other run keeps the machine, it costs the whole price."""
    alone_s = 0.0 if is_shared else max(0.0, seconds - slot.busy_s)
    return slot.offer.usd_per_hour * (seconds - alone_s) / 3600 + slot.machine_usd_per_hour * alone_s / 3600


def machine_usd(offer: Offer, seconds: float) -> float:
    """Return the cost of a point of that duration on its own machine, from rent to destroy, in USD."""
    return offer.usd_per_hour * seconds / 3600 + offer.loading_usd


@dataclass(frozen=True, kw_only=True)
class MachineShape:
    """A machine to be held, and the number of concurrent points on it."""

    offer: Offer
    slots: int
    used: int
    """Number of slots that waiting points use; the rest would be idle."""


@dataclass(frozen=True, kw_only=True)
class CheapestFleet:
    """The machines for a queue of points, with both prices: packed, and one machine for each point."""

    machines: tuple[MachineShape, ...]
    packed_usd_per_hour: float
    """Mean USD per hour of a point."""
    single_usd_per_hour: float | None
    """USD per hour of the cheapest machine for a single point; None: there is no offer."""


def cheapest_fleet(
    points: int, offers: Iterable[Offer], *, gpus: int, seconds: float, max_slots: int = 64
) -> CheapestFleet | None:
    """Return the machines on which `points` of that size and duration cost least; None without an offer.

    Finds offers of many GPUs that are cheaper per GPU than single ones. Greedy: the next machine has the
    lowest cost per point that it would get, loading included, so that a large one is not chosen for the
    last few points. A job without GPUs gets its own machine.
    """
    left = {offer.id: offer for offer in offers}
    # Concurrent points on each machine.
    slots = {offer.id: min(max_slots, offer.gpus // gpus) if gpus else 1 for offer in left.values()}
    singles = [offer.usd_per_hour for offer in left.values() if slots[offer.id] == 1]
    machines: list[MachineShape] = []
    waiting = points
    while able := {id_: min(slots[id_], waiting) for id_ in left if min(slots[id_], waiting) > 0}:
        # For a tie the machine with more points, which saves a rent.
        best = min(able, key=lambda id_: (machine_usd(left[id_], seconds) / able[id_], -able[id_]))
        machines.append(MachineShape(offer=left.pop(best), slots=slots[best], used=able[best]))
        waiting -= able[best]
    if not machines:
        return None
    return CheapestFleet(
        machines=tuple(machines),
        packed_usd_per_hour=sum(shape.offer.usd_per_hour for shape in machines) / (points - waiting),
        single_usd_per_hour=min(singles, default=None),
    )


def should_give_back(
    idle_s: float, usd_per_hour: float, offer: Offer | None, *, is_needed: bool, more_may_come: bool
) -> bool:
    """Return whether a held machine of that offer, on which no run has a slot, should be destroyed now.

    `is_needed`: a point that fits it waits. It is then kept until it has cost as much as another one would,
    which at most doubles the cost. `more_may_come`: the queue may still get something for it, such as a
    retry.
    """
    if is_needed:
        another_usd = 0.0 if offer is None else replacement_cost_usd(offer)
        return usd_per_hour * idle_s / 3600 > another_usd
    return not more_may_come or idle_s >= GIVE_BACK_S


def replacement_cost_usd(offer: Offer) -> float:
    """Return the cost of another machine in its place before its first step, in USD."""
    return machine_usd(offer, START_S)


def max_run_s(job: JobSpec, usd_per_hour: float) -> float:
    """Return the max. seconds of a run of the job on a share of a machine at this price, by its limits."""
    life_s, limit_usd = job.limits.hours * 3600, share_usd(job)
    # A share has no price for storage or traffic, and so no reserve for these.
    return life_s if limit_usd is None or not usd_per_hour else min(life_s, limit_usd / usd_per_hour * 3600)


def needed_s(job: JobSpec, usd_per_hour: float) -> float:
    """Return the seconds for which a machine must last for a run of the job, by its own limits."""
    return max(MIN_LEFT_S, max_run_s(job, usd_per_hour) + _SLOT_ENDS_S)


def expected_s(job: JobSpec, offer: Offer, measured_s: Sequence[float]) -> float:
    """Return the expected seconds of a run of the job there, once the machine is ready.

    `measured_s`: durations of other points of the batch. Without any, the offer's forecast; without that,
    all of the time that the job's limits allow.
    """
    max_s = max_run_s(job, offer.usd_per_hour)
    if measured_s:
        return min(max_s, median(measured_s))
    if offer.forecast is not None:
        return min(max_s, offer.forecast.train_s)
    if offer.expected_usd and offer.usd_per_hour:
        return min(max_s, (offer.expected_usd - offer.loading_usd) / offer.usd_per_hour * 3600)
    return max_s


def pays_off(offer: Offer, *, rounds: int) -> bool:
    """Return whether `rounds` points one after the other cost less on this machine than on one each.

    Each machine costs money before it trains; a held one costs money between two points, too.
    """
    handover_usd = offer.usd_per_hour * HANDOVER_S / 3600
    return rounds > 1 and rounds * handover_usd <= (rounds - 1) * replacement_cost_usd(offer)


def choose_hold(
    job: JobSpec, offer: Offer, *, slots: int, rounds: int, seconds: float, max_usd: float
) -> JobSpec | None:
    """Return the job that holds the machine for `rounds` points on each slot, its limit in whole cents.

    None: `max_usd` does not cover even one point.

    `seconds`: expected duration of a point. The last one may still take all that its limits allow. With
    too little money for all, fewer are planned; what is not spent is released at the end.
    """
    price = offer.usd_per_hour
    first_s = _FIRST_SLOT_S + needed_s(job, price / slots)
    all_s = first_s + (rounds - 1) * (seconds * _SAFETY_FACTOR + HANDOVER_S)
    hours = min(all_s / 3600, max(first_s / 3600, _MAX_HOURS))
    hold = partial(hold_spec, job, slots=slots, idle_s=IDLE_S)
    if not price:
        return hold(hours=hours, usd=None)
    min_usd, worst_usd = (
        math.ceil(worst_case_usd(hold(hours=one, usd=None), offer) * 100) / 100
        for one in (first_s / 3600, hours)
    )
    if min_usd > max_usd:
        return None
    usd = worst_usd if worst_usd <= max_usd else math.floor(max_usd * 100) / 100
    return hold(hours=max(first_s / 3600, hours - (worst_usd - usd) / price), usd=max(min_usd, usd))
