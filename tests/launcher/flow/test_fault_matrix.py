"""Every verb x every moment x every trouble, and a kill at every call.

Nothing may stay rented, and no verdict may lie.
"""

import json
import random
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.launcher.faults import (
    DISK_TROUBLES,
    KILL_IN,
    MOMENTS,
    PAUSES,
    PROVIDER_TROUBLES,
    REMOTE_TROUBLES,
    Fault,
    Moment,
    check_first_call,
    check_later_calls,
    launch_killed,
)
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied, drive_to_the_end
from tests.launcher.world import World
from tests.slow import slow
from vastrun.contract import layout
from vastrun.contract.data_files import EXIT_OF_BLAME, Blame
from vastrun.launcher.core import Cause, Phase, bills
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.run_assessment import CAUSE_OF_BLAME
from vastrun.launcher.outputs.store import FolderStore

VERBS: dict[str, tuple[str, ...]] = {
    "provider.search": PROVIDER_TROUBLES,
    "provider.rent": PROVIDER_TROUBLES,
    "provider.instances": PROVIDER_TROUBLES,
    "provider.machine": PROVIDER_TROUBLES,
    "provider.connect": (*PROVIDER_TROUBLES, "gone"),
    "provider.destroy": PROVIDER_TROUBLES,
    "ends_later.schedule_end": PROVIDER_TROUBLES,
    "ends_later.cancel_end": PROVIDER_TROUBLES,
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

CALLS = 6
"""The first calls of each verb, or all that a whole run makes, where they are fewer."""

ROWS = [
    *[
        (verb, moment, trouble)
        for verb, troubles in VERBS.items()
        for moment in MOMENTS
        for trouble in (*troubles, "detach")
    ],
    ("provider.instances", "before", "blank"),
    ("provider.destroy", "before", "ignored"),
]


def strikes(fault: Fault, folder: Path) -> bool:
    """Whether a whole run makes that call; with the fault in it nothing leaks and nothing lies."""
    world = World(folder)
    world.expect(fault)

    run = drive_to_the_end(world)

    check_nothing_leaked_and_nothing_lied(world, run)
    if fault.trouble in ("killed", "detach") and run is not None:
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


def test_a_list_that_fails_is_not_an_empty_list(world: World) -> None:
    launch_killed(world, "provider.destroy", "before")
    world.plan.calls.clear()
    world.expect(
        Fault(verb="provider.destroy", nth=1, moment="before", trouble="ignored", times=99),
        Fault(verb="provider.instances", nth=2, moment="before", trouble="error", times=99),
    )

    run = world.resume()

    assert run.phase is Phase.DESTROY
    assert world.rented() == 1


def test_one_blank_list_after_a_kill_does_not_rent_a_second_machine(world: World) -> None:
    launch_killed(world, "provider.rent", "after")
    world.plan.calls.clear()
    world.expect(Fault(verb="provider.instances", nth=1, moment="before", trouble="blank"))
    run = world.resume()
    assert run.cause is None, run.detail
    assert world.market.most_at_once == 1


@pytest.mark.parametrize("verb", ["remote.run", "remote.read", "provider.connect"])
def test_a_box_that_is_silent_for_a_minute_is_not_lost(verb: str, world: World) -> None:
    world.expect(Fault(verb=verb, nth=4, moment="before", trouble="unreachable", times=20))
    run = world.launch()
    assert run.cause is None, run.detail
    check_nothing_leaked_and_nothing_lied(world, run)


@pytest.mark.parametrize("trouble", PAUSES)
@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_a_computer_that_sleeps_in_a_phase_leaves_nothing_rented_and_no_false_verdict(
    phase: Phase, trouble: str, world: World
) -> None:
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
def test_a_launcher_killed_in_a_phase_and_never_resumed_leaves_nothing(phase: Phase, world: World) -> None:
    launch_killed(world, *KILL_IN[phase])
    assert world.run().phase is phase
    world.pass_time(policy.lease_of(world.spec, world.market.search(world.spec)[0]).life_s)
    assert world.rented() == 0


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.ENDED])
def test_a_launcher_killed_in_a_phase_and_resumed_ends_with_success(phase: Phase, world: World) -> None:
    launch_killed(world, *KILL_IN[phase])
    run = world.resume()
    assert run.cause is None, run.detail
    check_nothing_leaked_and_nothing_lied(world, run)


IN_THE_END = pytest.mark.parametrize(
    ("verb", "trouble"),
    [
        ("remote.read", "unreachable"),
        ("output_store.collect", "unreachable"),
        ("output_store.collect", "killed"),
        ("provider.destroy", "uncertain"),
        ("provider.instances", "busy"),
    ],
)


@IN_THE_END
def test_a_box_without_a_list_of_its_outputs_is_no_success_whatever_follows(
    verb: str, trouble: str, tmp_path: Path
) -> None:
    world = World(tmp_path, training=Training(writes_manifest=False))
    world.output_store = FolderStore()
    world.out_dir = str(tmp_path / "out")
    world.expect(Fault(verb=verb, nth=1, moment="before", trouble=trouble))

    run = drive_to_the_end(world)

    assert run is not None
    assert (run.cause, run.detail) == (Cause.UNPROVEN, "missing proof: outputs")
    (outputs,) = (proof for proof in run.proofs if proof.name == "outputs")
    assert "the machine left no list of its outputs" in outputs.text
    check_nothing_leaked_and_nothing_lied(world, run)


@pytest.mark.parametrize(("blame", "exit_code"), EXIT_OF_BLAME.items())
@IN_THE_END
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
