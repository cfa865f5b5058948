"""Parser of a held machine's list of slots.

A slot's number of units decides its share of the price, so their sum is bounded by the units that the machine
was held with: a machine can only shift cost between the runs on it, never beyond its own bill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastrun.contract.outcome import EpochSeconds
from vastrun.contract.records import MaxLength, Pattern, Range, RecordError, Text, read_json
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.core.slots import Slot, SlotList
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line

_Words = Annotated[str, Text(300)]


@dataclass(frozen=True, kw_only=True)
class _Slot:
    name: Annotated[str, MaxLength(120), Pattern(r"[A-Za-z0-9][\w-]*\.[0-9a-f]{4}")]
    label: Annotated[str, MaxLength(120), Pattern(r"vastrun-[\w.-]+")]
    rented_at: EpochSeconds
    units: Annotated[int, Range(1, caps.SLOT_UNITS)]
    armed: bool = False


@dataclass(frozen=True, kw_only=True)
class _SlotList:
    """The line that `python -m vastrun.trainer.holding` prints."""

    ready: bool = False
    drained: _Words = ""
    refused: _Words = ""
    slots: Annotated[tuple[_Slot, ...], MaxLength(caps.SLOT_UNITS)] = ()
    faults: Annotated[tuple[_Words, ...], MaxLength(100)] = ()


def parse_slots(printed: str, units: int) -> SlotList:
    """Parse the list of slots of a machine with `units` units. Raises BoxError when it is invalid."""
    try:
        reply: _SlotList = read_json(_SlotList, printed)
        if sum(slot.units for slot in reply.slots) > units:
            raise RecordError(f"more than the machine's {units} units are in use", "slots")
        if len({slot.name for slot in reply.slots}) < len(reply.slots):
            raise RecordError("duplicate name", "slots")
    except RecordError as error:
        raise BoxError(f"the machine sent an invalid list of slots: {error}") from error
    return SlotList(
        is_ready=reply.ready,
        drained=_display_text(reply.drained),
        refused=_display_text(reply.refused),
        slots=tuple(map(_slot, reply.slots)),
        faults=tuple(map(_display_text, reply.faults)),
    )


def _slot(slot: _Slot) -> Slot:
    return Slot(
        name=slot.name, label=slot.label, rented_at=slot.rented_at, units=slot.units, is_armed=slot.armed
    )


def _display_text(text: str) -> str:
    return one_line(text).strip()
