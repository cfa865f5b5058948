"""Placement: a warm slot or a new machine for a point, the cheapest fleet, and when one is destroyed.
Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vastrun.launcher.core import Offer
from vastrun.launcher.decisions.pool import GIVE_BACK_S


@dataclass(frozen=True, kw_only=True)
class WarmSlot:
    """A free slot of a held machine."""

    offer: Offer
    """Offer of the provider `pool`, at the price of the slot's share."""
    machine_usd_per_hour: float
    """USD per hour of the whole machine."""
    busy_s: float = 0.0
    """Seconds for which other runs keep the machine, as far as known."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Place where the next point runs, and the expected cost of both choices."""

    slot: WarmSlot | None
    """The slot; None: on a new machine."""
    offer: Offer | None
    """The new machine, or the alternative to the slot; None: there is none."""
    slot_usd: float | None = None
    machine_usd: float | None = None


def place_point(
    seconds: float, slots: Iterable[WarmSlot], offers: Sequence[Offer], *, others: bool
) -> Placement | None:
    """Return where a point of that duration costs least; None: there is neither a slot nor an offer.

    `others`: more points wait than there are free slots, so that all of a machine's price is shared. The
    slot wins a tie: it is ready at once.
    """
    warm = min(
        ((_slot_usd(slot, seconds, others=others), number, slot) for number, slot in enumerate(slots)),
        default=None,
    )
    new = min(
        ((machine_usd(offer, seconds), number, offer) for number, offer in enumerate(offers)), default=None
    )
    if warm is None and new is None:
        return None
    slot_usd, new_usd = warm and warm[0], new and new[0]
    takes_slot = warm is not None and (new is None or warm[0] <= new[0])
    return Placement(
        slot=warm[2] if takes_slot and warm else None,
        offer=new[2] if new else None,
        slot_usd=slot_usd,
        machine_usd=new_usd,
    )


def _slot_usd(slot: WarmSlot, seconds: float, *, others: bool) -> float:
    """Return the cost of the slot: while no other run keeps the machine, it costs the whole price."""
    alone_s = 0.0 if others else max(0.0, seconds - slot.busy_s)
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

    @property
    def usd_per_hour(self) -> float:
        """USD per hour of one point's share."""
        return self.offer.usd_per_hour / self.used


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
    shapes = {offer.id: slots_of(offer, gpus, max_slots) for offer in left.values()}
    singles = [offer.usd_per_hour for offer in left.values() if shapes[offer.id] == 1]
    machines: list[MachineShape] = []
    waiting = points
    while waiting > 0:
        able = [offer for offer in left.values() if shapes[offer.id] > 0]
        if not able:
            break
        best = min(able, key=lambda offer: _usd_a_point(offer, min(shapes[offer.id], waiting), seconds))
        used = min(shapes[best.id], waiting)
        machines.append(MachineShape(offer=left.pop(best.id), slots=shapes[best.id], used=used))
        waiting -= used
    if not machines:
        return None
    placed = sum(shape.used for shape in machines)
    return CheapestFleet(
        machines=tuple(machines),
        packed_usd_per_hour=sum(shape.offer.usd_per_hour for shape in machines) / placed,
        single_usd_per_hour=min(singles, default=None),
    )


def slots_of(offer: Offer, gpus: int, limit: int = 64) -> int:
    """Return the number of concurrent points of `gpus` GPUs on the machine."""
    return min(limit, offer.gpus // gpus) if gpus else 1


def _usd_a_point(offer: Offer, used: int, seconds: float) -> tuple[float, float]:
    """Return a sort key: USD per point, and for a tie the machine with more points, which saves a rent."""
    return machine_usd(offer, seconds) / used, -used


@dataclass(frozen=True, kw_only=True)
class IdleMachine:
    """A held machine on which no run has a slot."""

    idle_s: float
    usd_per_hour: float
    replacement_cost_usd: float
    """USD for another machine in its place: its boot, the pull of its image, its data."""


def should_give_back(machine: IdleMachine, *, wanted: bool, more_may_come: bool) -> bool:
    """Return whether an idle machine should be destroyed now.

    `wanted`: a point that fits it waits. It is then kept until it has cost as much as another one would,
    which at most doubles the cost. `more_may_come`: the queue may still get something for it, such as a
    retry.
    """
    if wanted:
        return machine.usd_per_hour * machine.idle_s / 3600 > machine.replacement_cost_usd
    return not more_may_come or machine.idle_s >= GIVE_BACK_S


def replacement_cost_usd(offer: Offer, *, boot_s: float, data_s: float) -> float:
    """Return the cost of a machine before its first step, in USD.

    `boot_s`: from rent to ready, with the pull of the image. `data_s`: making or fetching the data.
    """
    return offer.usd_per_hour * math.fsum((boot_s, data_s)) / 3600 + offer.loading_usd
