"""What a held machine prints of its slots becomes a SlotList.

The number of parts that a slot has decides its share of the price, so it is bounded by what the machine was
held for: a machine can only move dollars between the runs that are on it, and none beyond its own bill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastrun.contract.outcome import Moment
from vastrun.contract.records import AtMost, Between, Like, RecordError, Text, read_json
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.core.slots import Slot, SlotList
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.text import one_line

_Words = Annotated[str, Text(300)]


@dataclass(frozen=True, kw_only=True)
class _Slot:
    name: Annotated[str, AtMost(120), Like(r"[A-Za-z0-9][\w-]*\.[0-9a-f]{4}")]
    label: Annotated[str, AtMost(120), Like(r"vastrun-[\w.-]+")]
    rented_at: Moment
    units: Annotated[int, Between(1, caps.SLOT_UNITS)]
    armed: bool = False


@dataclass(frozen=True, kw_only=True)
class _SlotList:
    """The line that `python -m vastrun.trainer.holding` prints."""

    ready: bool = False
    drained: _Words = ""
    refused: _Words = ""
    slots: Annotated[tuple[_Slot, ...], AtMost(caps.SLOT_UNITS)] = ()
    faults: Annotated[tuple[_Words, ...], AtMost(100)] = ()


def slot_list_of(printed: str, units: int) -> SlotList:
    """Read what a machine of so many parts printed. Raises BoxError when it makes no sense."""
    try:
        said: _SlotList = read_json(_SlotList, printed)
        if sum(slot.units for slot in said.slots) > units:
            raise RecordError(f"more than the machine's {units} parts are taken", "slots")
        if len({slot.name for slot in said.slots}) < len(said.slots):
            raise RecordError("a name is there twice", "slots")
    except RecordError as error:
        raise BoxError(f"the machine sent an invalid list of slots: {error}") from error
    return SlotList(
        is_ready=said.ready,
        drained=_shown(said.drained),
        refused=_shown(said.refused),
        slots=tuple(map(_slot, said.slots)),
        faults=tuple(map(_shown, said.faults)),
    )


def _slot(slot: _Slot) -> Slot:
    return Slot(
        name=slot.name, label=slot.label, rented_at=slot.rented_at, units=slot.units, is_armed=slot.armed
    )


def _shown(text: str) -> str:
    return one_line(text).strip()
