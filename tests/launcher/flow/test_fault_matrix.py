"""Every verb x every moment x every trouble, and a kill at every call.

Nothing may stay rented, and no verdict may lie.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.jobs import train_job
from tests.launcher.faults import KILL_IN, PAUSES, Fault, Killed, Moment, check_first_call, check_later_calls
from tests.launcher.slow_world import long_job, slow_world
from tests.launcher.stop_world import (
    ENDS,
    EXIT_CODES,
    STOP_ROWS,
    Proofs,
    Stop,
    claims_to_have_finished,
    did_all_steps,
    stop_world,
    succeeds,
)
from tests.launcher.world import World
from tests.slow import slow
from vastrun.contract import layout
from vastrun.contract.data_files import EXIT_OF_BLAME, Blame
from vastrun.launcher.core import Cause, Phase, Run, Verdict, bills
from vastrun.launcher.core.errors import HeldError, StorageError
from vastrun.launcher.core.job import DataVolume
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.run_assessment import CAUSE_OF_BLAME

PROVIDER_TROUBLES = ("error", "uncertain", "unreachable", "denied", "busy", "vanish", "bug", "killed")
REMOTE_TROUBLES = ("error", "unreachable", "gone", "vanish", "bug", "killed")
DISK_TROUBLES = ("no space", "bug", "killed")

VERBS: dict[str, tuple[str, ...]] = {
    "provider.search": PROVIDER_TROUBLES,
    "provider.rent": PROVIDER_TROUBLES,
    "provider.instances": PROVIDER_TROUBLES,
    "provider.machine": PROVIDER_TROUBLES,
    "provider.connect": (*PROVIDER_TROUBLES, "gone"),
    "provider.destroy": PROVIDER_TROUBLES,
    "volumes.volumes": PROVIDER_TROUBLES,
    "volumes.volume_offer": PROVIDER_TROUBLES,
    "remote.run": REMOTE_TROUBLES,
    "remote.put": REMOTE_TROUBLES,
    "remote.write": REMOTE_TROUBLES,
    "remote.read": REMOTE_TROUBLES,
    "packer.pack": DISK_TROUBLES,
    "packer.secrets": DISK_TROUBLES,
    "packer.lease": DISK_TROUBLES,
    "output_store.check_unused": ("killed",),
    "output_store.check": DISK_TROUBLES,
    "output_store.download_log": DISK_TROUBLES,
    "output_store.download_checkpoint": (*DISK_TROUBLES, "error", "unreachable", "gone", "vanish"),
    "output_store.download_metrics": (*DISK_TROUBLES, "error", "unreachable", "gone", "vanish"),
    "output_store.collect": (*DISK_TROUBLES, "unreachable", "gone", "vanish"),
    "ledger.add": ("no space", "killed"),
    "ledger.save": ("no space", "killed"),
    "ledger.add_event": ("no space", "killed"),
    "ledger.hold": ("no space", "killed"),
}

VOLUME = DataVolume(name="pdebench", gb=200)
CALLS = 6
"""The first calls of each verb, or all that a whole run makes, where they are fewer."""

MOMENTS: tuple[Moment, ...] = ("before", "after")

ROWS = [
    *[
        (verb, moment, trouble)
        for verb, troubles in VERBS.items()
        for moment in MOMENTS
        for trouble in troubles
    ],
    ("provider.instances", "before", "blank"),
    ("provider.destroy", "before", "ignored"),
]


def drive_to_the_end(world: World) -> Run | None:
    """As a patient user would: launch, and resume whatever was interrupted. None: no row was ever written."""
    try:
        run = world.launch()
    except (Killed, StorageError, HeldError):
        pass
    else:
        if run.phase is Phase.ENDED:
            return run
    for _ in range(12):
        if not world.ledger.runs():
            return None
        try:
            run = world.resume()
        except (Killed, StorageError, HeldError):
            continue
        if run.phase is Phase.ENDED:
            return run
    return world.run()


def check_nothing_leaked_and_nothing_lied(world: World, run: Run | None) -> None:
    story = [f"{event.phase}: {event.text}" for event in world.screen.events]
    assert world.rented() == 0, story
    assert world.market.most_at_once <= 1, story
    if run is None:
        return
    assert run.phase is Phase.ENDED, story
    if run.cause is None:
        assert all(proof.holds for proof in run.proofs), run.proofs
        assert run.proofs, story
        assert layout.OUTCOME in world.output_store.home, story
        assert world.output_store.log.endswith("the end\n"), story
    else:
        assert run.detail, story
    cost = bills.cost_usd(run, world.clock.now())
    assert cost == pytest.approx(world.market.bill_usd, rel=0.05, abs=0.2), story


def strikes(fault: Fault, folder: Path) -> bool:
    """Whether a whole run makes that call; with the fault in it nothing leaks and nothing lies."""
    folder.mkdir()
    wants_volume = fault.verb.startswith("volumes.") or fault.verb == "provider.rent"
    world = World(folder, spec=replace(train_job(), volume=VOLUME) if wants_volume else None)
    world.expect(fault)

    run = drive_to_the_end(world)

    assert world.market.disks.created <= min(1, len(world.ledger.volumes.all()))
    check_nothing_leaked_and_nothing_lied(world, run)
    if fault.trouble == "killed" and run is not None:
        assert run.cause is None, f"{fault}: {run.cause} {run.detail}"
    if fault.trouble == "no space" and run is not None:
        assert run.cause in (None, Cause.STORAGE), f"{fault}: {run.cause} {run.detail}"
        assert run.cause is None or world.market.most_at_once == 0, "a run with a machine waits instead"
    return bool(world.plan.struck)


each_row = pytest.mark.parametrize(
    ("verb", "moment", "trouble"), ROWS, ids=lambda value: value.replace(" ", "_")
)


@each_row
def test_one_fault_in_the_first_call_leaves_nothing_rented_and_no_false_verdict(
    verb: str, moment: Moment, trouble: str, tmp_path: Path
) -> None:
    check_first_call(strikes, verb, moment, trouble, tmp_path)


@pytest.mark.slow
@each_row
def test_one_fault_in_a_later_call_leaves_nothing_rented_and_no_false_verdict(
    verb: str, moment: Moment, trouble: str, tmp_path: Path
) -> None:
    check_later_calls(strikes, verb, moment, trouble, tmp_path, CALLS)


@pytest.mark.parametrize("seed", [*range(8), *slow(*((seed,) for seed in range(8, 60)))])
def test_two_faults_leave_nothing_rented_and_no_false_verdict(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    world = World(tmp_path)
    faults = []
    for verb, moment, trouble in dice.sample(ROWS, 2):
        times = dice.choice((1, 1, 2, 5))
        faults.append(
            Fault(verb=verb, nth=dice.randint(1, CALLS), moment=moment, trouble=trouble, times=times)  # type: ignore[arg-type]
        )
    world.expect(*faults)

    run = drive_to_the_end(world)

    check_nothing_leaked_and_nothing_lied(world, run)


CHANGE_ROWS = [
    (verb, moment, trouble)
    for verb, troubles in {
        "remote.run": REMOTE_TROUBLES,
        "remote.read": REMOTE_TROUBLES,
        "output_store.download_log": DISK_TROUBLES,
        "output_store.collect": DISK_TROUBLES,
        "provider.instances": PROVIDER_TROUBLES,
        "provider.destroy": PROVIDER_TROUBLES,
        "ledger.save": ("no space", "killed"),
        "ledger.add_event": ("no space", "killed"),
    }.items()
    for moment in MOMENTS
    for trouble in troubles
]
"""What may go wrong while a run leaves a slow machine: the last calls of its launcher."""
STILL_SLOW = ("killed", "unreachable", "busy")
QUICK_CHANGE_ROWS = [
    row
    for row in CHANGE_ROWS
    if row[2] in STILL_SLOW and row[1] == ("after" if row[2] == "killed" else "before")
]


def a_run_on_a_slow_machine(folder: Path) -> World:
    return slow_world(folder, long_job(retry={"slow": 1}))


@pytest.fixture(scope="module")
def calls_of_a_change(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, int]:
    """How often each verb is called until such a run has ended, when nothing goes wrong."""
    world = a_run_on_a_slow_machine(tmp_path_factory.mktemp("calls"))
    assert world.launch().cause is Cause.SLOW
    return world.plan.calls


@pytest.mark.parametrize(
    ("verb", "moment", "trouble"),
    [*QUICK_CHANGE_ROWS, *slow(*(row for row in CHANGE_ROWS if row not in QUICK_CHANGE_ROWS))],
    ids=lambda value: value.replace(" ", "_"),
)
def test_a_fault_while_a_slow_machine_is_left_leaves_nothing_rented_and_no_false_verdict(
    verb: str, moment: Moment, trouble: str, calls_of_a_change: Mapping[str, int], tmp_path: Path
) -> None:
    world = a_run_on_a_slow_machine(tmp_path)
    nth = max(1, calls_of_a_change[verb] - 2)
    world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble))

    run = drive_to_the_end(world)

    assert world.plan.struck
    check_nothing_leaked_and_nothing_lied(world, run)
    assert run is not None
    if trouble in STILL_SLOW:
        assert run.cause is Cause.SLOW, run.detail


def test_a_list_that_fails_is_not_an_empty_list(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb="provider.destroy", nth=1, moment="before", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    world.plan.calls.clear()
    world.expect(
        Fault(verb="provider.destroy", nth=1, moment="before", trouble="ignored", times=99),
        Fault(verb="provider.instances", nth=2, moment="before", trouble="error", times=99),
    )

    run = world.resume()

    assert run.phase is Phase.DESTROY
    assert world.rented() == 1


def test_one_blank_list_after_a_kill_does_not_rent_a_second_machine(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb="provider.rent", nth=1, moment="after", trouble="killed"))
    with pytest.raises(Killed):
        world.launch()
    world.plan.calls.clear()
    world.expect(Fault(verb="provider.instances", nth=1, moment="before", trouble="blank"))

    run = world.resume()

    assert run.cause is None, run.detail
    assert world.market.most_at_once == 1


@pytest.mark.parametrize("verb", ["remote.run", "remote.read", "provider.connect"])
def test_a_box_that_is_silent_for_a_minute_is_not_lost(verb: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.expect(Fault(verb=verb, nth=4, moment="before", trouble="unreachable", times=20))

    run = world.launch()

    assert run.cause is None, run.detail
    check_nothing_leaked_and_nothing_lied(world, run)


@pytest.mark.parametrize("trouble", PAUSES)
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_a_computer_that_sleeps_in_a_phase_leaves_nothing_rented_and_no_false_verdict(
    phase: Phase, trouble: str, tmp_path: Path
) -> None:
    world = World(tmp_path)
    verb, moment = KILL_IN[phase]
    world.expect(Fault(verb=verb, nth=1, moment=moment, trouble=trouble))

    run = world.launch()

    if trouble == "sleeps":
        assert run.cause is None, run.detail
        check_nothing_leaked_and_nothing_lied(world, run)
        return
    # Nobody saw when the lease ended the machine: at the latest then.
    offer = world.market.search(world.spec)[0]
    kept_s = policy.lease_of(world.spec, offer).life_s + policy.LIMIT_SLACK_S
    assert (run.phase, world.rented(), world.market.most_at_once <= 1) == (Phase.ENDED, 0, True)
    assert run.cause is not None or all(proof.holds for proof in run.proofs)
    cost_usd = bills.cost_usd(run, world.clock.now())
    assert world.market.bill_usd - 0.2 <= cost_usd <= kept_s / 3600 * offer.usd_per_hour + 0.2


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_a_launcher_killed_in_a_phase_and_never_resumed_leaves_nothing(phase: Phase, tmp_path: Path) -> None:
    world = World(tmp_path)
    verb, moment = KILL_IN[phase]
    world.expect(Fault(verb=verb, nth=1, moment=moment, trouble="killed"))

    with pytest.raises(Killed):
        world.launch()

    assert world.run().phase is phase
    world.pass_time(policy.lease_of(world.spec, world.market.search(world.spec)[0]).life_s)
    assert world.rented() == 0


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_a_launcher_killed_in_a_phase_and_resumed_ends_with_success(phase: Phase, tmp_path: Path) -> None:
    world = World(tmp_path)
    verb, moment = KILL_IN[phase]
    world.expect(Fault(verb=verb, nth=1, moment=moment, trouble="killed"))

    with pytest.raises(Killed):
        world.launch()
    run = world.resume()

    assert run.cause is None, run.detail
    check_nothing_leaked_and_nothing_lied(world, run)


def check_verdict_of_a_stop(world: World, stop: Stop, exit_code: int, proofs: Proofs) -> None:
    run = drive_to_the_end(world)

    check_nothing_leaked_and_nothing_lied(world, run)
    assert run is not None
    if succeeds(exit_code, proofs):
        assert run.verdict is Verdict.SUCCEEDED, run.detail
    else:
        assert (run.verdict, run.cause) == (ENDS[stop].verdict, ENDS[stop].cause), run.detail
    [proof] = [proof for proof in run.proofs if proof.name == "stop"]
    assert proof.holds is (exit_code == 0 and did_all_steps(proofs))
    assert "SIGTERM was sent" in proof.text


QUICK_STOPS = [row for row in STOP_ROWS if row[1] == 0]


@pytest.mark.parametrize(
    ("stop", "exit_code", "proofs"),
    [*QUICK_STOPS, *slow(*(row for row in STOP_ROWS if row not in QUICK_STOPS))],
)
def test_a_program_that_was_stopped_has_succeeded_only_by_the_steps_that_it_did_before(
    stop: Stop, exit_code: int, proofs: Proofs, tmp_path: Path
) -> None:
    world = stop_world(tmp_path, stop, exit_code, proofs)
    # Whoever stopped it is killed before it has the outputs; the next launcher finds the same verdict.
    world.expect(Fault(verb="output_store.collect", nth=1, moment="before", trouble="killed"))

    check_verdict_of_a_stop(world, stop, exit_code, proofs)

    assert world.plan.struck


@pytest.mark.parametrize(
    ("stop", "exit_code", "proofs"), [row for row in QUICK_STOPS if not succeeds(0, row[2])]
)
def test_a_box_that_calls_a_stopped_program_finished_is_not_believed(
    stop: Stop, exit_code: int, proofs: Proofs, tmp_path: Path
) -> None:
    world = stop_world(tmp_path, stop, exit_code, proofs)
    world.market.training = claims_to_have_finished(world.market.training)

    check_verdict_of_a_stop(world, stop, exit_code, proofs)


def test_the_table_of_stops_has_every_stop_with_every_exit_code() -> None:
    assert len(STOP_ROWS) >= 40
    assert {(stop, exit_code) for stop, exit_code, _ in STOP_ROWS} == {
        (stop, exit_code) for stop in ENDS for exit_code in EXIT_CODES
    }


@pytest.mark.parametrize(("blame", "exit_code"), EXIT_OF_BLAME.items())
@pytest.mark.parametrize(
    ("verb", "trouble"),
    [
        ("remote.read", "unreachable"),
        ("output_store.collect", "unreachable"),
        ("output_store.collect", "killed"),
        ("provider.destroy", "uncertain"),
        ("provider.instances", "busy"),
    ],
)
def test_a_failed_download_of_data_blames_the_same_party_whatever_follows(
    blame: Blame, exit_code: int, verb: str, trouble: str, tmp_path: Path
) -> None:
    end = {"step": "38-download", "exit_code": exit_code, "seconds": 1.0, "last_line": "a.h5: why"}
    steps = json.dumps(end).encode() + b"\n"
    training = Training(writes_outcome=False, exit_code=exit_code, leaves={layout.STEPS: steps})
    world = World(tmp_path, training=training)
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble=trouble))

    run = drive_to_the_end(world)

    assert run is not None
    assert (run.cause, run.detail) == (CAUSE_OF_BLAME[blame], "download failed: a.h5: why")
    check_nothing_leaked_and_nothing_lied(world, run)
