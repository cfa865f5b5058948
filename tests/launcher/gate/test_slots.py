"""What a held machine prints of its slots, and what an answer that leaves something out means."""

from __future__ import annotations

import json

import pytest

from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.core.slots import Slot, SlotList
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.slots import parse_slots

ROW = {"name": "calm-heron-3f1a.0a0b", "label": "vastrun-calm-heron-3f1a", "rented_at": 1.8e9, "units": 2}


def named(number: int, **changes: object) -> dict[str, object]:
    return {**ROW, "name": f"calm-heron-{number}.0a0b", **changes}


def test_a_machine_that_does_not_say_so_is_not_ready_and_has_nothing() -> None:
    assert parse_slots("{}", 8) == SlotList(is_ready=False, drained="", refused="", slots=(), faults=())


def test_each_field_of_the_list_is_read() -> None:
    said = {"ready": True, "drained": "ends", "refused": "full", "slots": [ROW], "faults": ["a", "b"]}
    slot = Slot(
        name="calm-heron-3f1a.0a0b", label="vastrun-calm-heron-3f1a", rented_at=1.8e9, units=2, is_armed=False
    )
    assert parse_slots(json.dumps(said), 8) == SlotList(
        is_ready=True, drained="ends", refused="full", slots=(slot,), faults=("a", "b")
    )
    (armed,) = parse_slots(json.dumps({"slots": [{**ROW, "armed": True}]}), 8).slots
    assert armed.is_armed


def test_slots_may_have_all_parts_of_the_machine_and_not_one_more() -> None:
    full = {"slots": [named(1, units=3), named(2, units=5)]}
    assert len(parse_slots(json.dumps(full), 8).slots) == 2
    with pytest.raises(BoxError, match="more than the machine's 7 units are in use"):
        parse_slots(json.dumps(full), 7)


@pytest.mark.parametrize(
    ("units", "fits"), [(0, False), (1, True), (caps.SLOT_UNITS, True), (caps.SLOT_UNITS + 1, False)]
)
def test_a_slot_has_between_one_part_and_the_most(units: int, fits: bool) -> None:
    said = json.dumps({"slots": [named(1, units=units)]})
    if fits:
        assert parse_slots(said, 1000).slots[0].units == units
    else:
        with pytest.raises(BoxError, match="units"):
            parse_slots(said, 1000)
