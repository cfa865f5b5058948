"""A box's status: what its ranks may cost to read, and what no honest box says of them."""

import json
import time
import typing
from collections.abc import Sequence

import pytest
from annotated_types import Le

from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import MAX_UNITS, Slot, SlotList
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.box_reader import parse_box_status, parse_slots

ROW = {"name": "calm-heron-3f1a.0a0b", "label": "vastrun-calm-heron-3f1a", "rented_at": 1.8e9, "units": 2}


def status(ranks: Sequence[int]) -> str:
    supervisor = {"ranks": [{"rank": rank, "step": 1, "activity": "forward"} for rank in ranks]}
    return json.dumps({"now": 1.8e9, "box": "running", "supervisor": supervisor})


def test_a_status_has_as_many_ranks_as_a_job_may_ask_for() -> None:
    hint = typing.get_type_hints(JobSpec, include_extras=True)["ranks"]
    limits = [
        mark.le
        for arg in typing.get_args(hint)
        for mark in getattr(arg, "__metadata__", ())
        if isinstance(mark, Le)
    ]
    assert limits == [caps.RANKS]
    assert len(parse_box_status(status(range(caps.RANKS))).ranks) == caps.RANKS


@pytest.mark.parametrize("ranks", [range(caps.RANKS + 1), [0] * 9_999])
def test_more_ranks_than_a_machine_has_are_refused_at_once(ranks: Sequence[int]) -> None:
    printed = status(ranks)
    began = time.process_time()
    with pytest.raises(BoxError, match="ranks: expected a length of at most 64"):
        parse_box_status(printed)
    assert time.process_time() - began < 0.5


def test_the_supervisor_says_nothing_of_the_box() -> None:
    supervisor = {"step": 7, "box": "idle", "lease": "armed", "lease_ends_at": 9e9, "free_mb": 1, "at": 1.0}
    printed = json.dumps({"now": 1.8e9, "box": "running", "step": 3, "supervisor": supervisor})
    found = parse_box_status(printed)
    assert (found.step, found.box, found.at) == (7, "running", 1.8e9)
    assert (found.lease, found.lease_ends_at, found.free_mb) == ("none", None, None)


def test_a_rank_that_is_listed_twice_is_refused() -> None:
    with pytest.raises(BoxError, match="a rank is listed twice"):
        parse_box_status(status([0, 1, 0]))


def named(number: int, **changes: object) -> dict[str, object]:
    return {**ROW, "name": f"calm-heron-{number}.0a0b", **changes}


def test_a_machine_that_does_not_say_so_is_not_ready_and_has_nothing() -> None:
    assert parse_slots("{}", 8) == SlotList(is_ready=False, drained="", refused="", slots=(), faults=())


def test_each_field_of_the_list_is_read() -> None:
    said = {"is_ready": True, "drained": "ends", "refused": "full", "slots": [ROW], "faults": ["a", "b"]}
    slot = Slot(
        name="calm-heron-3f1a.0a0b", label="vastrun-calm-heron-3f1a", rented_at=1.8e9, units=2, is_armed=False
    )
    assert parse_slots(json.dumps(said), 8) == SlotList(
        is_ready=True, drained="ends", refused="full", slots=(slot,), faults=("a", "b")
    )
    (armed,) = parse_slots(json.dumps({"slots": [{**ROW, "is_armed": True}]}), 8).slots
    assert armed.is_armed


def test_slots_may_have_all_parts_of_the_machine_and_not_one_more() -> None:
    full = {"slots": [named(1, units=3), named(2, units=5)]}
    assert len(parse_slots(json.dumps(full), 8).slots) == 2
    with pytest.raises(BoxError, match="more than the machine's 7 units are in use"):
        parse_slots(json.dumps(full), 7)


@pytest.mark.parametrize(
    ("units", "fits"), [(0, False), (1, True), (MAX_UNITS, True), (MAX_UNITS + 1, False)]
)
def test_a_slot_has_between_one_part_and_the_most(units: int, fits: bool) -> None:
    said = json.dumps({"slots": [named(1, units=units)]})
    if fits:
        assert parse_slots(said, 1000).slots[0].units == units
    else:
        with pytest.raises(BoxError, match="units"):
            parse_slots(said, 1000)
