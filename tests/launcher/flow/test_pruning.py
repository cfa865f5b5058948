"""A run that its batch gives up: saved, brought home, given back, and never called a failure."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakebox import Loading, Training
from tests.launcher.cli.test_help import EXIT_CODES
from tests.launcher.faults import DISK_TROUBLES, REMOTE_TROUBLES, Fault, Moment, launch_killed
from tests.launcher.run_checks import check_nothing_leaked_and_nothing_lied, drive_to_the_end
from tests.launcher.terminal import CRASH, Terminal
from tests.launcher.world import RUN_ID, World
from vastrun.contract import layout
from vastrun.contract.outcome import Outcome
from vastrun.launcher.batch.observer import prune
from vastrun.launcher.core import Cause, Run, UserRequest, Verdict
from vastrun.launcher.core.batch import Pruning
from vastrun.launcher.core.runs import CAUSE_OF_REQUEST

REASON = "at step 4 its loss 0.41 is not among the best third (best 2 of 7; the bar is 0.32)"
LONG = Training(seconds=600, steps=100)


def prune_now(world: World | Terminal, run: Run) -> None:
    """The batch gives the run up."""
    prune(world.ledger, run, Pruning(run=run.id, reason=REASON), world.clock.now())


def prune_later(world: World, *, after_s: float) -> None:
    """The same, once so much time has passed."""
    at, sleep = world.clock.now() + after_s, world.clock.sleep

    def heard(seconds: float) -> None:
        sleep(seconds)
        if world.clock.now() >= at and world.ledger.runs():
            prune_now(world, world.run())

    world.clock.sleep = heard  # type: ignore[method-assign]


def test_a_pruned_run_saves_a_checkpoint_comes_home_and_says_why(tmp_path: Path) -> None:
    world = World(tmp_path, training=LONG)
    prune_later(world, after_s=50)

    run = world.launch()

    assert (run.cause, run.verdict, run.exit_code()) == (Cause.PRUNED, Verdict.PRUNED, 3)
    assert run.detail == f"{REASON}; stopped after a checkpoint"
    assert layout.OUTCOME in world.output_store.home
    assert any(path.endswith("state.pt") for path in world.output_store.home)
    assert run.rented_at is not None and world.clock.now() - run.rented_at < 100
    assert world.rented() == 0
    told = [event.text for event in world.ledger.events(RUN_ID)]
    assert told.count(f"pruned by its batch: {REASON}") == 1
    assert f"pruned: {run.detail}" in told
    assert not any(text.startswith("failed") for text in told)


def plan(world: World) -> None:
    prune_now(world, world.begin())


def rent(world: World) -> None:
    launch_killed(world, "provider.rent", "after")
    prune_now(world, world.run())


def boot(world: World) -> None:
    world.market.loading = {f"host-{n}": Loading(seconds=300, layer_s=50) for n in range(1, 8)}
    prune_later(world, after_s=30)
    world.begin()


@pytest.mark.parametrize("reach", [plan, rent, boot])
def test_before_its_training_it_ends_at_once_with_the_same_verdict(
    reach: Callable[[World], None], tmp_path: Path
) -> None:
    world = World(tmp_path, training=LONG)
    reach(world)
    run = world.resume()
    assert run.verdict is Verdict.PRUNED
    assert run.detail.startswith(f"{REASON}; stopped before ")
    assert world.output_store.home == {}
    assert world.rented() == 0
    assert (run.rented_at is None) == (reach is plan)


def test_one_that_does_not_stop_in_time_is_pruned_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, training=replace(LONG, obeys=False))
    prune_later(world, after_s=50)
    run = world.launch()
    assert (run.cause, run.detail) == (Cause.PRUNED, f"{REASON}; killed: it did not stop in time")
    assert world.rented() == 0


def test_a_machine_that_only_says_it_was_pruned_contradicts_the_diary(tmp_path: Path) -> None:
    def says_so(outcome: Outcome) -> Outcome:
        return replace(outcome, reason="stopped", stop_cause="pruned", detail="stopped by its batch")

    world = World(tmp_path, training=Training(outcome=says_so, exit_code=143))

    run = world.launch()

    assert (run.cause, run.verdict) == (Cause.CONTRADICTION, Verdict.UNKNOWN)
    assert "which the batch did not request (stopped by its batch)" in run.detail


def test_a_training_that_was_done_before_it_was_asked_has_succeeded(world: World) -> None:
    launch_killed(world, "output_store.download_log", "after", nth=2)
    world.pass_time(60)
    prune_now(world, world.run())
    run = world.resume()
    assert run.verdict is Verdict.SUCCEEDED


def test_what_its_user_asks_for_is_stronger(tmp_path: Path) -> None:
    world = World(tmp_path, training=LONG)
    prune_later(world, after_s=50)
    world.user_requests.at = {world.clock.now() + 30: UserRequest.DESTROY}
    assert world.launch().cause is Cause.STOPPED


def test_asking_twice_notes_one_reason(world: World) -> None:
    run = world.begin()
    for reason in (REASON, "later"):
        prune(world.ledger, run, Pruning(run=RUN_ID, reason=reason), world.clock.now())
    assert [event.text for event in world.ledger.events(RUN_ID)] == [f"pruned by its batch: {REASON}"]
    assert world.ledger.user_request(RUN_ID) is UserRequest.PRUNE


def test_a_run_that_fails_while_it_is_to_be_pruned_is_not_tried_again(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, replace(CRASH, obeys=False, seconds=30))
    terminal.job.write_text(terminal.job.read_text() + "retry: {signal: 3}\n")
    terminal.at(10, lambda: prune_now(terminal, terminal.ledger.runs()[0]))
    terminal.launch()
    (run,) = terminal.ledger.runs()
    assert run.cause is Cause.SIGNAL


def test_why_tells_in_words_that_it_was_pruned_and_why(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path, LONG, Training())
    terminal.at(50, lambda: prune_now(terminal, terminal.ledger.runs()[0]))
    assert terminal.launch().exit_code == 3
    why = " ".join(terminal.type("why", "last").stdout.split())
    assert f"PRUNED: {REASON}; stopped after a checkpoint" in why
    assert f"continue it: vastrun launch --provider fake --from {terminal.ledger.runs()[0].id}" in why
    assert terminal.document("why", "last")["run"]["verdict"] == "PRUNED"
    assert "pruned by its batch" in EXIT_CODES[3]


def test_every_request_says_what_it_ends_a_run_with() -> None:
    assert set(CAUSE_OF_REQUEST) == set(UserRequest)
    assert UserRequest.DETACH.strength < UserRequest.PRUNE.strength < UserRequest.STOP.strength


ROWS = [
    (verb, moment, trouble)
    for verb, troubles in {
        "remote.run": REMOTE_TROUBLES,
        "remote.read": REMOTE_TROUBLES,
        "output_store.collect": (*DISK_TROUBLES, "unreachable"),
        "provider.destroy": ("error", "unreachable", "killed"),
        "ledger.events": ("no space", "killed"),
        "ledger.save": ("no space", "killed"),
    }.items()
    for moment in ("before", "after")
    for trouble in troubles
]


@pytest.mark.sampled(15)
@pytest.mark.parametrize(("verb", "moment", "trouble"), ROWS)
def test_a_fault_while_it_is_pruned_leaves_nothing_rented_and_no_false_verdict(
    verb: str, moment: Moment, trouble: str, tmp_path: Path
) -> None:
    struck = 0
    for nth in (1, 5, 30, 31, 32):
        world = World(tmp_path / str(nth), training=replace(LONG, seconds=60))
        prune_later(world, after_s=12)
        world.expect(Fault(verb=verb, nth=nth, moment=moment, trouble=trouble))

        run = drive_to_the_end(world)

        assert run is not None
        check_nothing_leaked_and_nothing_lied(world, run)
        if trouble == "killed":
            assert run.cause is Cause.PRUNED, run.detail
        if run.cause is Cause.PRUNED:
            assert run.detail.startswith(REASON)
        struck += len(world.plan.struck)
    assert struck, "no fault of this row ever struck: the row tests nothing"
