"""Runs on slots of a machine that a run holds, through the flow that every run has, with real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.core import Cause, Phase
from tests.launcher.providers.pool.house import House, program

WELL = "print('all is well')"
WAITS = "print('at work'); import time; time.sleep(120); print('all is well')"
PATIENT = (
    "print('at work'); import os, pathlib, time\n"
    "go = pathlib.Path(os.environ['VASTRUN_BOX']).parents[3] / 'go'\n"
    "while not go.exists(): time.sleep(0.1)\n"
    "print('all is well')"
)
EATS = "print('at work'); x = bytearray(900 << 20); import time; time.sleep(120)"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.clean()


def test_a_run_on_a_slot_ends_as_on_a_machine_of_its_own_and_the_machine_is_given_back(house: House) -> None:
    holder = house.hold(program(WELL))
    run_id, drive = house.launch(program(WELL))
    run = drive.end()

    assert run.cause is None, (run.detail, house.story())
    assert all(proof.holds for proof in run.proofs)
    assert "all is well" in (house.folder / "runs" / run_id / "log.txt").read_text()
    assert house.slots() == []
    held = house.give_back(holder.id)
    assert held.cause is Cause.STOPPED, held.detail
    assert held.phase is Phase.ENDED
    assert house.leftovers() == []


def test_a_machine_that_nobody_wants_ends_by_itself(house: House) -> None:
    house.hold(program(WELL), idle_s=1.0)
    held = house.holding.end()
    assert held.cause is None, held.detail
    assert any("no slot was wanted for 1 s" in proof.text for proof in held.proofs)
    assert house.leftovers() == []


def kill_program_of(house: House, run_id: str) -> None:
    """The run's program is killed, as by somebody on its machine."""
    found = [process for process in house.processes(run_id) if "at work" in " ".join(process.cmdline())]
    assert found
    for process in found:
        process.kill()


def test_a_slot_that_breaks_out_of_its_memory_or_is_killed_leaves_its_neighbour_alone(house: House) -> None:
    small = program(WELL, memory_gb=0.6)
    holder = house.hold(small, slots=3)
    patient_id, patient = house.launch(program(PATIENT, memory_gb=0.6))
    house.waits_for(patient_id, "rank0 at work")
    greedy_id, greedy = house.launch(program(EATS, memory_gb=0.6))
    killed_id, killed = house.launch(program(WAITS, memory_gb=0.6))
    house.waits_for(killed_id, "rank0 at work")
    kill_program_of(house, killed_id)

    assert killed.end().cause in (Cause.SIGNAL, Cause.HOST)
    eaten = greedy.end()
    assert eaten.cause is Cause.OUT_OF_MEMORY, (eaten.detail, house.story())
    log = (house.folder / "runs" / greedy_id / "log.txt").read_text()
    assert "of memory in use of 0.6 GiB for this slot" in log
    (house.folder / "go").touch()
    assert patient.end().cause is None, house.story()
    assert house.give_back(holder.id).phase is Phase.ENDED
    assert house.leftovers() == []
