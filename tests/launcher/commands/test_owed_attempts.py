"""A launcher that was killed between two attempts owes the next one: `resume` begins it, and only then."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakebox import Training
from tests.jobs import train_job
from tests.launcher.faults import Fault, Killed, Moment
from tests.launcher.terminal import CRASH, Terminal
from tests.launcher.world import World
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Driver, Phase, Run, UserRequest
from vastrun.launcher.core.job import JobSpec, Limits
from vastrun.launcher.flow.drive import create_run, drive
from vastrun.launcher.run_services import services_of

RETRIED = train_job(retry={"signal": 1})


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path, CRASH, Training())


def killed_after_one_attempt(terminal: Terminal, spec: JobSpec = RETRIED) -> Run:
    """The run of a launcher that was killed as soon as its first attempt had failed."""
    app = terminal.app()
    interrupts = app.interrupts()
    services = services_of(app, "fake", interrupts, app.plain_screen())
    out = str(terminal.folder / "out")
    run = drive(
        create_run(spec, dump_job(spec), services, run_id="calm-heron-3f1a", out_dir=out), spec, services
    )
    assert (run.phase, run.cause) == (Phase.ENDED, Cause.SIGNAL)
    return run


def test_resume_begins_the_next_attempt(terminal: Terminal) -> None:
    first = killed_after_one_attempt(terminal)
    end = terminal.type("resume", first.id)
    assert end.exit_code == 0, end.output
    second, _ = terminal.ledger.runs()
    assert (second.parent, second.cause, second.out_dir) == (first.id, None, f"{first.out_dir}-2")
    assert "attempt 2: calm-heron-3f1a ended with signal" in end.stderr
    assert "for all 2 attempts" in end.stdout
    assert terminal.machines() == 0


def test_its_outputs_come_to_the_folder_that_resume_names(terminal: Terminal) -> None:
    killed_after_one_attempt(terminal)
    assert terminal.type("resume", "last", "--out", str(terminal.folder / "there")).exit_code == 0
    assert terminal.ledger.runs()[0].out_dir == str(terminal.folder / "there")


def no_retry(terminal: Terminal) -> Run:
    return killed_after_one_attempt(terminal, train_job(retry={"host": 3}))


def no_money(terminal: Terminal) -> Run:
    return killed_after_one_attempt(terminal, train_job(retry={"signal": 1}, limits=Limits(usd=0.08)))


def tried_again_before(terminal: Terminal) -> Run:
    first = killed_after_one_attempt(terminal)
    terminal.type("resume", first.id)
    return first


def told_to_stop(terminal: Terminal) -> Run:
    run = killed_after_one_attempt(terminal)
    terminal.ledger.ask(run.id, UserRequest.STOP)
    return run


def pruned(terminal: Terminal) -> Run:
    run = killed_after_one_attempt(terminal)
    terminal.ledger.ask(run.id, UserRequest.PRUNE)
    return run


@pytest.mark.parametrize("leave", [no_retry, no_money, tried_again_before, told_to_stop, pruned])
def test_run_that_is_owed_no_attempt_has_ended(terminal: Terminal, leave: Callable[[Terminal], Run]) -> None:
    run = leave(terminal)
    before = list(terminal.ledger.runs())
    end = terminal.type("resume", run.id)
    assert end.exit_code == 2
    assert f"{run.id} has ended" in end.stderr
    assert terminal.ledger.runs() == before


def test_two_launchers_never_begin_the_same_attempt(terminal: Terminal) -> None:
    run = killed_after_one_attempt(terminal)
    terminal.ledger.hold(run.id, Driver(who="other:1:0", until=terminal.clock.now() + 600))
    end = terminal.type("resume", run.id)
    assert end.exit_code == 1
    assert "another launcher" in end.stderr
    assert terminal.ledger.runs() == [run]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_launcher_killed_while_it_begins_an_attempt_leaves_exactly_one_to_resume(
    moment: Moment, tmp_path: Path
) -> None:
    world = World(tmp_path, training=CRASH, spec=RETRIED)
    world.expect(Fault(verb="ledger.add", nth=2, moment=moment, trouble="killed"))

    with pytest.raises(Killed):
        launcher_of(world, "first:1:0").drive_to_end(world.begin())
    world.dead.add("first:1:0")
    last = launcher_of(world, "second:1:0").resume(world.ledger.runs()[0], None)

    assert (last.phase, last.cause) == (Phase.ENDED, Cause.SIGNAL)
    assert [run.parent for run in world.ledger.runs()] == [world.run().id, None]
    assert (world.rented(), world.market.most_at_once) == (0, 1)


def launcher_of(world: World, who: str) -> Attempts:
    return Attempts(services_for=lambda *_: world.services(who), new_id=lambda: f"{who[:3]}-otter-0001")
