"""Commands and runs that others wrote into a team's ledger: strangers, and teammates with the team's key."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.jobs import train_job
from tests.launcher.ledger.computers import ledger_of
from tests.launcher.ledger.postgres import PostgresServer
from tests.launcher.ledger.test_ledgers import FULL
from tests.launcher.terminal import Terminal
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Cause, Driver, Phase, Run

ACTING = (
    ("resume",),
    ("launch", "-y", "--from"),
    ("pull",),
    ("export", "--to", "x.pt"),
    ("ssh",),
    ("forward",),
    ("ssh-config",),
    ("report",),
)


def test_a_run_that_others_made_up_is_shown_and_no_command_acts_by_its_row(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    url, terminal = postgres.database(), Terminal(tmp_path / "desk")
    trap = tmp_path / "trap"
    (trap / "checkpoints").mkdir(parents=True)
    (trap / "checkpoints" / "latest.json").touch()
    mallory = ledger_of("mallory~9", url, team="m" * 44, now=terminal.clock.now)
    with closing(mallory), closing(ledger_of("desk~1", url, now=terminal.clock.now)) as ledger:
        terminal.ledger = ledger.for_display()  # type: ignore[assignment]
        mallory.add(replace(FULL, out_dir=str(trap), spec_json=dump_job(train_job()), parent=None, batch=""))
        before = sorted(tmp_path.rglob("*"))
        for command in ACTING:
            end = terminal.type(*command, FULL.id, *(["6006"] if command == ("forward",) else []))
            assert (end.exit_code, "is only shown here" in end.stderr) == (2, True), (command, end.stderr)
        for command in (("status",), ("why",), ("cost",), ("logs",)):
            assert terminal.type(*command, FULL.id).exit_code == 0, command
        assert sorted(tmp_path.rglob("*")) == before
    assert terminal.machines() == 0


def test_attach_follows_an_unsigned_run_without_driving(tmp_path: Path, postgres: PostgresServer) -> None:
    url, terminal = postgres.database(), Terminal(tmp_path / "desk")
    mallory = ledger_of("mallory~9", url, team="m" * 44, now=terminal.clock.now)
    with closing(mallory), closing(ledger_of("desk~1", url, now=terminal.clock.now)) as ledger:
        terminal.ledger = ledger.for_display()  # type: ignore[assignment]
        run = replace(FULL, phase=Phase.TRAIN, cause=None, spec_json=dump_job(train_job()), batch="")
        mallory.add(replace(run, parent=None))
        who = "mallory~9:1:aa"
        mallory.hold(run.id, Driver(who=who, until=terminal.clock.now() + 600))
        ended = replace(run, parent=None, phase=Phase.ENDED)
        terminal.at(3.0, lambda: mallory.save(ended, who=who))
        assert terminal.type("attach", run.id).exit_code == 0
        assert mallory.get(run.id).phase is Phase.ENDED

        mallory.save(replace(ended, phase=Phase.TRAIN), who=who)
        mallory.release(run.id, who)
        end = terminal.type("attach", run.id)
        assert (end.exit_code, "is only shown here" in end.stderr) == (2, True)
    assert terminal.machines() == 0


def of_teammate(terminal: Terminal, folder: Path) -> Run:
    """A run of another computer that failed before it trained: another machine would be tried."""
    run = replace(
        FULL,
        phase=Phase.ENDED,
        cause=Cause.HOST,
        failed_in=Phase.BOOT,
        provider="fake",
        spec_json=dump_job(train_job()),
        parent=None,
        batch="",
        point="",
        computer="bob~2",
        home="bob~2",
        out_dir=str(folder),
    )
    terminal.ledger.add(run)
    return run


def test_no_attempt_at_a_teammates_job_is_made_on_this_computers_own_machines(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "desk")
    terminal.market.shared = False
    run = of_teammate(terminal, tmp_path)
    end = terminal.type("resume", run.id)
    assert (end.exit_code, "can be reached only from there" in end.stderr) == (2, True)
    assert (terminal.ledger.count(), terminal.machines()) == (1, 0)


def test_the_job_of_a_teammate_is_not_launched_with_this_computers_folders(tmp_path: Path) -> None:
    terminal = Terminal(tmp_path / "desk")
    run = of_teammate(terminal, tmp_path)
    end = terminal.type("launch", "-y", "--from", run.id)
    assert (end.exit_code, "was read on bob: its folders are there" in end.stderr) == (2, True)
    assert f"vastrun launch JOB.yaml --from {run.id}" in end.stderr
