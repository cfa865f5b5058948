"""Runs on slots of a machine that a run holds, through the flow that every run has, with real processes."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.e2e.terminal import JOBS
from tests.launcher.faults import Fault
from tests.launcher.pool.house import House, program
from tests.waiting import eventually
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Cause, Driver, Phase, UserRequest, Verdict
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import Limits

WELL = "print('all is well')"
WAITS = "print('at work'); import time; time.sleep(120); print('all is well')"
PATIENT = (
    "print('at work'); import os, pathlib, time\n"
    "go = pathlib.Path(os.environ['VASTRUN_BOX']).parents[3] / 'go'\n"
    "while not go.exists(): time.sleep(0.1)\n"
    "print('all is well')"
)
SAVES = (
    "import signal, sys, time\n"
    "def save(*_): print('saved'); sys.exit(143)\n"
    "signal.signal(signal.SIGTERM, save); print('at work'); time.sleep(120)"
)
EATS = "print('at work'); x = bytearray(900 << 20); import time; time.sleep(120)"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    house = House(tmp_path)
    yield house
    house.clean()


@pytest.mark.slow
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
    assert any("no slot was requested for 1 s" in proof.text for proof in held.proofs)
    assert house.leftovers() == []


@pytest.mark.slow
def test_a_slot_that_breaks_out_of_its_memory_or_is_killed_leaves_its_neighbour_alone(house: House) -> None:
    small = program(WELL, memory_gb=0.6)
    holder = house.hold(small)
    patient_id, patient = house.launch(program(PATIENT, memory_gb=0.6))
    house.waits_for(patient_id, "rank0 at work")
    greedy_id, greedy = house.launch(program(EATS, memory_gb=0.6))
    eaten = greedy.end()
    assert eaten.cause is Cause.OUT_OF_MEMORY, (eaten.detail, house.story())
    killed_id, killed = house.launch(program(WAITS, memory_gb=0.6))
    house.waits_for(killed_id, "rank0 at work")
    found = 0
    for process in house.processes(killed_id):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since it was found
            if "at work" in " ".join(process.cmdline()):
                process.kill()
                found += 1
    assert found

    assert killed.end().cause in (Cause.SIGNAL, Cause.HOST)
    log = (house.folder / "runs" / greedy_id / "log.txt").read_text()
    assert "of memory in use of 0.6 GiB for this slot" in log
    (house.folder / "go").touch()
    assert patient.end().cause is None, house.story()
    assert house.give_back(holder.id).phase is Phase.ENDED
    assert house.leftovers() == []


DAEMON_S = f"240.{os.getpid()}"
"""Tells it from that of another test on this computer."""
LEAVES_A_DAEMON = (f"env -i setsid sleep {DAEMON_S} >/dev/null 2>&1 </dev/null &",)
"""It has left its session, and nothing in its environment says whose it is."""


@pytest.mark.slow
def test_a_machine_that_is_not_clean_takes_no_more_slots_and_ends(house: House) -> None:
    holder = house.hold(program(WELL))
    _, drive = house.launch(replace(program(WELL), setup=LEAVES_A_DAEMON))
    run = drive.end()
    daemons = [
        each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"] == ["sleep", DAEMON_S]
    ]
    try:
        assert run.cause is None, (run.detail, house.story())
        # By then its driver may have seen it too, and have ended it, or be ending it while it answers.
        seen = "not clean: still running: sleep|being destroyed|no machine is held|cannot list slots: exit"
        with pytest.raises(NoOfferError, match=seen):
            house.provider("pool", house.ledger).search(program(WELL))
        held = house.holding.end()
        assert held.cause is None
        assert any("not clean: still running: sleep" in proof.text for proof in held.proofs), held.proofs
        assert held.id == holder.id
    finally:
        for daemon in daemons:
            daemon.kill()
    assert house.leftovers() == []


KILL_IN = {
    Phase.PLAN: Fault(verb="provider.search", nth=1, moment="after", trouble="killed"),
    Phase.RENT: Fault(verb="provider.rent", nth=1, moment="after", trouble="killed"),
    Phase.BOOT: Fault(verb="remote.read", nth=1, moment="before", trouble="killed"),
    Phase.SHIP: Fault(verb="remote.put", nth=1, moment="after", trouble="killed"),
    Phase.TRAIN: Fault(verb="remote.run", nth=3, moment="after", trouble="killed"),
    Phase.COLLECT: Fault(verb="remote.write", nth=1, moment="before", trouble="killed"),
    Phase.DESTROY: Fault(verb="provider.destroy", nth=1, moment="before", trouble="killed"),
}


@pytest.mark.slow
def test_a_launcher_killed_in_any_phase_of_a_run_on_a_slot_is_resumed_to_a_success(house: House) -> None:
    holder = house.hold(program(WELL))
    for phase, fault in KILL_IN.items():
        house.plan.faults = (fault,)
        house.plan.calls.clear()
        run_id, drive = house.launch(program(WELL), faulty=True)
        eventually(lambda drive=drive: not drive.is_alive(), what="the kill")
        assert drive.killed, (phase, drive.error, house.story())
        assert house.ledger.get(run_id).phase is phase
        assert len(house.slots()) <= 1

        run = house.resume(run_id)

        assert run.cause is None, (phase, run.detail, house.story())
        assert house.slots() == []
    assert house.give_back(holder.id).phase is Phase.ENDED
    assert house.leftovers() == []


@pytest.mark.slow
def test_a_slot_that_no_open_run_claims_is_reaped(house: House) -> None:
    holder = house.hold(program(WELL))
    run_id, drive = house.launch(program(WAITS))
    house.waits_for(run_id, "rank0 at work")
    drive.kill()
    ledger, who = house.ledger, "host:99:0"
    ledger.hold(run_id, Driver(who=who, until=time.time() + 60))
    ledger.save(replace(ledger.get(run_id), phase=Phase.ENDED), who=who)
    ledger.release(run_id, who)

    assert [each.split("@")[1] for each in house.reap("pool")] == [holder.id]

    assert house.slots() == []
    assert house.give_back(holder.id).phase is Phase.ENDED
    assert house.leftovers() == []


@pytest.mark.slow
def test_when_all_launchers_are_dead_leases_end_the_slot_and_then_the_machine(house: House) -> None:
    short = replace(program(WAITS), limits=Limits(hours=0.015, stall_s=90, start_s=90, collect_s=1))
    holder = house.hold(short, idle_s=20.0)
    run_id, drive = house.launch(short)
    house.waits_for(run_id, "rank0 at work")
    drive.kill()
    house.holding.kill()

    eventually(lambda: not house.slots(), what="the end of the slot by its lease")
    box = house.folder / "boxes" / (holder.instance_id or "")
    eventually((box / "run" / "exit").exists, what="the end of the machine that nobody wants")
    assert house.resume(holder.id).cause is None
    assert house.resume(run_id).verdict in (Verdict.OUTPUTS_LOST, Verdict.LIMIT)
    assert house.leftovers() == []


@pytest.mark.slow
def test_giving_a_machine_back_lets_a_run_on_a_slot_save_and_come_home(house: House) -> None:
    holder = house.hold(program(WELL))
    run_id, drive = house.launch(program(SAVES))
    house.waits_for(run_id, "rank0 at work")

    held = house.give_back(holder.id)

    run = drive.end()
    assert run.cause is Cause.PREEMPTED, (run.detail, house.story())
    assert "saved" in (house.folder / "runs" / run_id / "log.txt").read_text()
    assert held.cause is Cause.STOPPED
    assert house.leftovers() == []


@pytest.mark.slow
def test_a_machine_destroyed_under_its_slots_is_seen_as_lost_and_nothing_goes_on(house: House) -> None:
    holder = house.hold(program(WELL))
    run_id, drive = house.launch(program(WAITS))
    house.waits_for(run_id, "rank0 at work")
    house.ledger.ask(holder.id, UserRequest.DESTROY)
    assert drive.end().verdict is Verdict.LOST, house.story()
    assert house.holding.end().phase is Phase.ENDED
    eventually(lambda: house.leftovers() == [], what="the end of all processes")


@pytest.mark.torch
@pytest.mark.slow
def test_a_training_on_a_slot_ends_as_one_on_a_machine_of_its_own(house: House) -> None:
    job = load_job((JOBS / "learn.yaml").read_text(), "learn.yaml", base_dir=str(JOBS))
    alone_id, alone = house.launch(job, provider="local")
    assert alone.end().cause is None, house.story()
    holder = house.hold(job)
    slot_id, on_slot = house.launch(job)
    run = on_slot.end()

    assert run.cause is None, (run.detail, house.story())
    assert [(proof.name, proof.holds) for proof in run.proofs] == [
        (proof.name, proof.holds) for proof in house.ledger.get(alone_id).proofs
    ]
    assert outputs_of(house, slot_id) == outputs_of(house, alone_id)
    assert losses_of(house, slot_id) == losses_of(house, alone_id)
    assert house.give_back(holder.id).phase is Phase.ENDED
    assert house.leftovers() == []


def outputs_of(house: House, run_id: str) -> set[str]:
    """The files that came home, without those of W&B, whose runs have names of their own."""
    folder = house.folder / "runs" / run_id
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    return {name for name in names if "wandb" not in name}


def losses_of(house: House, run_id: str) -> list[float]:
    lines = (house.folder / "runs" / run_id / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines if "loss" in json.loads(line)]
