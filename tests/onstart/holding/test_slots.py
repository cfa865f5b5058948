"""Slots are made once, never more than there is room for, and removed with all that they started."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.waiting import eventually
from vastrun.contract import layout
from vastrun.contract.records import write_json
from vastrun.onstart.holding import slots
from vastrun.onstart.holding.hold import Holder
from vastrun.onstart.holding.machine import HeldBox, box_processes, list_processes

SLOT, OTHER = "calm-owl-0001.0000", "calm-owl-0002.0000"
ONSTART = Path(__file__).parents[3] / "onstart"
LEASE = {
    "LEASE_SHIP_S": "600",
    "LEASE_LIFE_S": "3600",
    "LEASE_LIFE_CAUSE": "money_limit",
    "LEASE_GRACE_S": "60",
    "LEASE_COLLECT_S": "600",
}


def holder() -> str:
    """Name the instance: its processes are found on the whole computer, so each worker has another."""
    return f"held-owl-{os.getpid()}"


def environ() -> dict[str, str]:
    return {"VASTRUN_PYTHON": sys.executable, "VASTRUN_INSTANCE": holder(), "LEASE_LIFE_CAUSE": "time_limit"}


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    """A machine of two parts that is held for ten hours; nothing of its slots outlives the test."""
    shutil.copytree(ONSTART, tmp_path / layout.ONSTART)
    (tmp_path / layout.SLOTS).mkdir()
    write_json(tmp_path / layout.HELD_MACHINE, vars(HeldBox(units=2, cores=(0, 1), memory_mib=4000)))
    leave(tmp_path, 36_000)
    yield tmp_path
    for slot in slots.slots_of(tmp_path):
        slots.destroy(tmp_path, slot.name)


def leave(box: Path, seconds: float) -> None:
    """The machine's own lease ends it in so long."""
    (box / layout.LEASE_STATE).write_text(f"state=armed\nends_at={time.time() + seconds:.0f}\n")


def rent(
    box: Path, name: str = SLOT, *, units: int = 1, env: Mapping[str, str] = LEASE
) -> slots.SlotResponse:
    request = slots.SlotRequest(
        name=name,
        id=f"{name}@{holder()}",
        label=f"vastrun-{name.partition('.')[0]}",
        units=units,
        gpus=0,
        lease=(ONSTART / "lease.sh").read_text(),
        env=env,
    )
    return slots.rent(box, request, environ())


def names(answer: slots.SlotResponse) -> list[object]:
    return [row["name"] for row in answer.slots]


def environment(box: Path, variable: str) -> str:
    """What a command in the slot sees."""
    script = str(box / layout.SLOT_SCRIPT)
    env = {"PATH": os.environ["PATH"], **environ()}
    done = subprocess.run(
        ["bash", script, SLOT, f'echo "${variable}"'], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_slot_that_was_asked_for_twice_by_one_name_is_one(box: Path) -> None:
    rent(box)
    answer = rent(box)
    assert names(answer) == [SLOT]
    assert not answer.refused
    assert answer.slots[0]["is_armed"]


def test_there_are_never_more_slots_than_parts(box: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(partial(rent, box), (f"calm-owl-{number}.0000" for number in range(4))))
    assert len(slots.slots_of(box)) == 2
    assert sorted(bool(answer.refused) for answer in answers) == [False, False, True, True]
    assert {slot.units for slot in slots.slots_of(box)} == {(0,), (1,)}
    assert {slot.cores for slot in slots.slots_of(box)} == {(0,), (1,)}


def test_a_slot_of_several_parts_has_all_of_them(box: Path) -> None:
    rent(box, units=2)
    (slot,) = slots.slots_of(box)
    assert (slot.units, slot.cores, slot.memory_mib) == ((0, 1), (0, 1), 4000)
    assert "0 free" in rent(box, OTHER).refused


def test_a_machine_that_is_not_held_yet_or_drained_has_no_slot(box: Path) -> None:
    slots.drain(box, "enough")
    assert "enough" in rent(box).refused
    (box / layout.HELD_MACHINE).unlink()
    assert rent(box).refused == "the machine is not held yet"
    assert not slots.list_slots(box).is_ready


def test_a_slot_s_lease_ends_before_that_of_its_machine(box: Path) -> None:
    leave(box, 1000)
    rent(box)
    assert 900 < int(environment(box, "LEASE_LIFE_S")) <= 970
    assert environment(box, "LEASE_LIFE_CAUSE") == "time_limit"
    leave(box, 40)
    assert "ends soon" in rent(box, OTHER).refused


def test_a_lease_that_is_short_enough_stays_as_it_was_asked_for(box: Path) -> None:
    rent(box)
    assert environment(box, "LEASE_LIFE_S") == "3600"
    assert environment(box, "LEASE_LIFE_CAUSE") == "money_limit"
    assert environment(box, "VASTRUN_HELD") == holder()
    assert environment(box, "VASTRUN_INSTANCE") == f"{SLOT}@{holder()}"


def test_a_slot_that_is_removed_takes_all_of_its_processes_along_and_no_other_s(box: Path) -> None:
    script = str(box / layout.SLOT_SCRIPT)
    for name in (SLOT, OTHER):
        rent(box, name)
        subprocess.run(["bash", script, name, "setsid sleep 120 >/dev/null 2>&1 &"], check=True)
    gone, stays = (box / layout.SLOTS / name for name in (SLOT, OTHER))

    answer = slots.destroy(box, gone.name)

    assert answer.faults == ()
    there = list_processes()
    assert box_processes(there, gone) == set()
    assert {there[pid].name for pid in box_processes(there, stays)} >= {"sleep"}
    assert names(slots.list_slots(box)) == [stays.name]


def test_on_a_rented_machine_the_end_of_a_slot_is_not_the_end_of_the_machine(
    box: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease that believes to be the machine's asks Vast to end it, and ends no slot."""
    monkeypatch.setenv("VASTRUN_PROVIDER", "vast")
    monkeypatch.setenv("VAST_URL", "http://127.0.0.1:9")
    rent(box)
    assert environment(box, "VASTRUN_PROVIDER") == "pool"
    assert slots.destroy(box, SLOT).faults == ()
    assert not slots.list_slots(box).slots
    assert not (box / layout.SLOTS / SLOT).exists()


def test_removing_what_never_was_is_no_error(box: Path) -> None:
    assert slots.destroy(box, "nothing.0000").faults == ()


def test_a_record_that_cannot_be_read_is_no_slot_and_is_removed(box: Path) -> None:
    rent(box)
    (box / layout.SLOTS / SLOT / layout.SLOT_RECORD).write_text("{")
    assert slots.list_slots(box).slots == ()
    assert slots.destroy(box, SLOT).faults == ()
    assert not (box / layout.SLOTS / SLOT).exists()


def test_the_holder_ends_only_when_no_slot_is_there(box: Path) -> None:
    now = [0.0]
    said: list[str] = []
    holder = Holder(box, idle_s=10.0, say=said.append, now=lambda: now[0])
    assert holder.poll() is None
    rent(box)
    now[0] = 100.0
    assert holder.poll() is None
    slots.drain(box, "not clean: something")
    assert holder.poll() is None
    slots.destroy(box, SLOT)
    assert holder.poll() == "not clean: something"
    assert said == [f"slot {SLOT} is ready", f"slot {SLOT} is removed"]


def test_an_idle_holder_takes_no_slot_once_it_has_decided_to_end(box: Path) -> None:
    now = [0.0]
    holder = Holder(box, idle_s=10.0, say=lambda _: None, now=lambda: now[0])
    holder.poll()
    now[0] = 10.0
    assert holder.poll() == "no slot was requested for 10 s"
    assert "no slot was requested" in rent(box).refused


@pytest.mark.parametrize(("why", "cause"), [("money_limit", "money_limit"), ("stopped", "preempted")])
def test_a_holder_that_is_to_end_asks_its_slots_to_stop_and_waits_for_them(
    why: str, cause: str, box: Path
) -> None:
    now = [0.0]
    holder = Holder(box, idle_s=10.0, say=lambda _: None, now=lambda: now[0])
    rent(box)
    (box / layout.STOP).write_text(f"{why}\n")
    assert holder.poll() is None
    stop = box / layout.SLOTS / SLOT / layout.STOP
    assert stop.read_text() == f"{cause}\n"
    now[0] = 60.0
    assert holder.poll() is None
    now[0] = 91.0
    assert why in (holder.poll() or "")


def test_a_slot_whose_lease_is_over_is_gone_by_itself(box: Path) -> None:
    # On a busy computer the lease is over while it is still being armed, which kills the script that arms it.
    with suppress(subprocess.CalledProcessError):
        rent(box, env={**LEASE, "LEASE_LIFE_S": "1", "LEASE_GRACE_S": "0"})
    eventually(lambda: not slots.list_slots(box).slots, what="the end of the slot")
