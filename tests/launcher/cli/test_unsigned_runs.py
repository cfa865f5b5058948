"""Commands and runs of a team's ledger that are not signed: they are shown, and nothing is done by them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.jobs import train_job
from tests.launcher.ledger.computers import ledger_of
from tests.launcher.ledger.postgres import PostgresServer
from tests.launcher.ledger.test_ledgers import FULL
from tests.launcher.terminal import Terminal
from vastrun.launcher.config import dump_job

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
