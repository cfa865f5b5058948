"""Slots: shares of a held machine for several runs, as that machine lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass

TAKES_SLOTS = "the machine takes slots"
"""Start of the event in the diary of a run that holds a machine, once slots can be made there."""
POOL = "pool"
"""Name of the provider whose machines are slots."""

_ID = re.compile(
    r"(?P<name>[A-Za-z0-9][\w-]{0,99}\.[0-9a-f]{4})@(?P<holder>[A-Za-z0-9][\w-]{0,99})", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class SlotId:
    """The id of an instance of the provider `pool`: `NAME@HOLDER`."""

    name: str
    """Name of its folder on the machine."""
    holder: str
    """Id of the run that holds the machine."""

    def __str__(self) -> str:
        return f"{self.name}@{self.holder}"


def slot_id_of(instance_id: str) -> SlotId | None:
    """Parse the id of an instance; None when it is not a slot's."""
    found = _ID.fullmatch(instance_id)
    return None if found is None else SlotId(name=found["name"], holder=found["holder"])


@dataclass(frozen=True, kw_only=True)
class Slot:
    """An existing slot, as its machine lists it."""

    name: str
    label: str
    rented_at: float
    units: int
    """Number of the machine's equal parts that it has."""
    is_armed: bool
    """True if its lease is armed."""


@dataclass(frozen=True, kw_only=True)
class SlotList:
    """List of slots from a held machine."""

    is_ready: bool = False
    """True once it accepts slots."""
    drained: str = ""
    """Reason why it accepts no further slots; empty: it does."""
    refused: str = ""
    """Reason why the requested slot was not made."""
    slots: tuple[Slot, ...] = ()
    faults: tuple[str, ...] = ()
    """Leftovers of a slot that was removed."""

    @property
    def taken(self) -> int:
        """Number of parts of the machine that belong to slots."""
        return sum(slot.units for slot in self.slots)
