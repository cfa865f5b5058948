"""Slots: the shares of a machine that is held for several runs, as that machine lists them."""

from __future__ import annotations

import re
from dataclasses import dataclass

POOL = "pool"
"""The name of the provider whose machines are slots."""

_ID = re.compile(
    r"(?P<name>[A-Za-z0-9][\w-]{0,99}\.[0-9a-f]{4})@(?P<holder>[A-Za-z0-9][\w-]{0,99})", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class SlotId:
    """The id of an instance of the provider `pool`: `NAME@HOLDER`."""

    name: str
    """Of its folder on the machine."""
    holder: str
    """The id of the run that holds the machine."""

    def __str__(self) -> str:
        return f"{self.name}@{self.holder}"


def slot_id_of(instance_id: str) -> SlotId | None:
    """Read the id of an instance; None when it is that of no slot."""
    found = _ID.fullmatch(instance_id)
    return None if found is None else SlotId(name=found["name"], holder=found["holder"])


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A slot that is there, as its machine says."""

    name: str
    label: str
    rented_at: float
    units: int
    """How many of the machine's equal parts it has."""
    is_armed: bool
    """Its lease is at work."""


@dataclass(frozen=True, kw_only=True)
class SlotList:
    """What a held machine says of its slots."""

    is_ready: bool = False
    """It takes slots, or did."""
    drained: str = ""
    """Why it takes no more; empty: it does."""
    refused: str = ""
    """Why the slot that was asked for was not made."""
    slots: tuple[Slot, ...] = ()
    faults: tuple[str, ...] = ()
    """What a slot that was removed has left behind."""

    @property
    def taken(self) -> int:
        """How many parts of the machine belong to slots."""
        return sum(slot.units for slot in self.slots)
