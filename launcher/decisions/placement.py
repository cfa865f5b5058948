"""Holding: a warm slot or a new machine, how many of which shape, and when one is given back. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vastrun.launcher.core import Offer
from vastrun.launcher.decisions.pool import GIVE_BACK_S


@dataclass(frozen=True, kw_only=True)
class WarmSlot:
    """A free slot of a machine that is held."""

    offer: Offer
    """Of the provider `pool`, at the price of its share."""
    machine_usd_per_hour: float
    """Of the whole machine."""
    busy_s: float = 0.0
    """So long the machine is kept by other runs, as far as is known."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where the next point goes, and what either way is expected to cost."""

    slot: WarmSlot | None
    """None: on a new machine."""
    offer: Offer | None
    """The new machine, or the one that was left for the slot; None: there is none."""
    slot_usd: float | None = None
    machine_usd: float | None = None


def place_point(
    seconds: float, slots: Iterable[WarmSlot], offers: Sequence[Offer], *, others: bool
) -> Placement | None:
    """Return where a point of so many seconds costs least; None: there is neither a slot nor an offer.

    `others`: more points wait than there are free slots, so that all of a machine's price is shared. Of two
    that cost the same, the slot is taken: it is there at once.
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
    """A machine that nobody else keeps is kept for this point alone, at its whole price."""
    alone_s = 0.0 if others else max(0.0, seconds - slot.busy_s)
    return slot.offer.usd_per_hour * (seconds - alone_s) / 3600 + slot.machine_usd_per_hour * alone_s / 3600


def machine_usd(offer: Offer, seconds: float) -> float:
    """Return what a point of so many seconds costs on a machine of its own, from rent to destroy."""
    return offer.usd_per_hour * seconds / 3600 + offer.loading_usd


@dataclass(frozen=True, kw_only=True)
class MachineShape:
    """A machine to be held, and how many points it is to take at once."""

    offer: Offer
    slots: int
    used: int
    """Of these, so many by the points that wait; the others would be idle."""

    @property
    def usd_per_hour(self) -> float:
        """The price of one point's share."""
        return self.offer.usd_per_hour / self.used


@dataclass(frozen=True, kw_only=True)
class CheapestFleet:
    """The machines for a queue of points, and both prices: packed, and each on a machine of its own."""

    machines: tuple[MachineShape, ...]
    packed_usd_per_hour: float
    """Of one point, in the mean."""
    single_usd_per_hour: float | None
    """Of the cheapest machine that takes one point only; None: none is on offer."""


def cheapest_fleet(
    points: int, offers: Iterable[Offer], *, gpus: int, seconds: float, max_slots: int = 64
) -> CheapestFleet | None:
    """Return the machines on which `points` of so many GPUs and seconds cost least; None without an offer.

    An offer of many GPUs that is cheaper per GPU than single ones is found here. One after the other the
    machine is taken whose price, with what it takes to load it, is the least for each point that it would
    have: a large one for the last few points is not cheap. A job without GPUs has a machine of its own.
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
    taken = sum(shape.used for shape in machines)
    return CheapestFleet(
        machines=tuple(machines),
        packed_usd_per_hour=sum(shape.offer.usd_per_hour for shape in machines) / taken,
        single_usd_per_hour=min(singles, default=None),
    )


def slots_of(offer: Offer, gpus: int, most: int = 64) -> int:
    """Return how many points of so many GPUs the machine takes at once."""
    return min(most, offer.gpus // gpus) if gpus else 1


def _usd_a_point(offer: Offer, used: int, seconds: float) -> tuple[float, float]:
    """Dollars of one point; of equals the machine with more of them, which needs one rent less."""
    return machine_usd(offer, seconds) / used, -used


@dataclass(frozen=True, kw_only=True)
class IdleMachine:
    """A machine on which no run has a slot."""

    idle_s: float
    usd_per_hour: float
    replacement_cost_usd: float
    """What it takes to have another one instead: its boot, the pull of its image, its data."""


def should_give_back(machine: IdleMachine, *, wanted: bool, more_may_come: bool) -> bool:
    """Tell whether an idle machine is given back now.

    `wanted`: a point waits that fits it. It is kept then for as long as it has not cost more than another one
    would: whoever waits longer pays twice that at most. `more_may_come`: the queue may yet have something
    for it, as when a run fails that is tried again.
    """
    if wanted:
        return machine.usd_per_hour * machine.idle_s / 3600 > machine.replacement_cost_usd
    return not more_may_come or machine.idle_s >= GIVE_BACK_S


def replacement_cost_usd(offer: Offer, *, boot_s: float, data_s: float) -> float:
    """Return what is paid for a machine before its first step. Of a free one, nothing is.

    `boot_s`: from rent to ready, with the pull of the image. `data_s`: making or fetching the data.
    """
    return offer.usd_per_hour * math.fsum((boot_s, data_s)) / 3600 + offer.loading_usd
