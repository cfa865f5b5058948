"""Rows that a writer of a team's database made up: no server drives them, and no command acts by them."""

import shlex
import signal
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.terminal import Terminal
from tests.launcher.ledger.postgres import PostgresServer
from tests.launcher.ledger.test_ledgers import RUN
from tests.waiting import eventually
from vastrun.launcher.config import dump_job
from vastrun.launcher.core.job import JobSpec, Limits, Resources, Success
from vastrun.launcher.ledger.schema import run_to_row

pytestmark = pytest.mark.slow


def written(url: str, table: str, values: Mapping[str, Any]) -> None:
    """A row, as anybody writes it who has the database."""
    names = ", ".join(values)
    places = ", ".join(f"%({name})s" for name in values)
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", dict(values))


def made_up(terminal: Terminal, mark: Path) -> dict[str, Any]:
    """The row of a run that would run a command on that computer, as if its own user had launched it."""
    (word,) = terminal.state.glob("vastrun/computer")
    here = f"{socket.gethostname()}~{word.read_text()}"
    spec = JobSpec(
        name="made-up",
        resources=Resources(gpus=0, disk_gb=8),
        limits=Limits(hours=0.1),
        ranks=1,
        setup=(f"touch {shlex.quote(str(mark))}",),
        command=("true",),
        success=Success(exit_code=0),
    )
    out = str(terminal.folder / "elsewhere")
    return run_to_row(RUN) | {
        "spec_json": dump_job(spec),
        "home": here,
        "computer": here,
        "out_dir": out,
        "held_usd": 0.0,
    }


def test_a_server_shows_a_run_that_others_made_up_for_its_computer_and_does_nothing_by_it(
    terminal: Terminal, tmp_path: Path, postgres: PostgresServer
) -> None:
    url, mark = postgres.database(), tmp_path / "mark"
    terminal.variables |= {"VASTRUN_LEDGER": url, "VASTRUN_TEAM_KEY": "k" * 44}
    honest = ("launch", "--provider", "local", "-y", "job.yaml")
    (terminal.folder / "job.yaml").write_text(
        "name: honest\nresources: {gpus: 0, disk_gb: 8}\nranks: 1\nlimits: {hours: 0.1}\n"
        "command: 'true'\nsuccess: {exit_code: 0}\n"
    )
    assert terminal.type(*honest).exit_code == 0
    written(url, "runs", made_up(terminal, mark))

    serve = terminal.start("serve", "--driver")
    eventually(lambda: RUN.id in serve.err, what="a word about the run")
    resumed = terminal.type("resume", RUN.id)
    serve.send(signal.SIGINT)
    assert serve.end().exit_code == 0

    assert not mark.exists()
    assert f"{RUN.id} is only shown here" in serve.err
    assert (resumed.exit_code, "is only shown here" in resumed.err) == (2, True)
    assert not (terminal.folder / "elsewhere").exists()
    shown = {run["id"]: run["phase"] for run in terminal.type("status", "--json").json()["runs"]}
    assert shown[RUN.id] == "plan"
