"""The ledger in SQLite: other versions, disks without room, interrupts, and many runs."""

import contextlib
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests import parts
from tests.launcher.ledger.conftest import NOW
from tests.launcher.ledger.test_ledgers import RUN
from tests.runs import ended_run
from tests.waiting import LONGEST_S
from vastrun.launcher.core import Cause, Event, Phase
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchSpec, Budget
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ledger import database, sql, sqlite
from vastrun.launcher.ledger.database import insert_statement
from vastrun.launcher.ledger.schema import run_to_row
from vastrun.launcher.ledger.sqlite import SqliteDatabase, SqliteLedger


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "ledger.db"


def opened(path: Path) -> SqliteLedger:
    return SqliteLedger(path, now=lambda: NOW, alive=lambda _: True)


@pytest.mark.parametrize("version", [1, 14, 99])
def test_a_ledger_of_another_version_is_left_alone_with_advice(path: Path, version: int) -> None:
    opened(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {version}")
    told = rf"another version of vastrun \(schema {version}; .*open runs"
    with pytest.raises(StorageError, match=told) as caught:
        opened(path)
    assert caught.value.hint == f"mv {path} {path}.old"


@pytest.mark.parametrize("version", [15, 16])
def test_a_ledger_of_an_earlier_version_is_used_and_raised(version: int, path: Path) -> None:
    opened(path).close()
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE volumes (name TEXT)")
        db.execute("INSERT INTO volumes VALUES ('sets')")
        db.execute(f"PRAGMA user_version = {version}")
    ledger = opened(path)
    ledger.add(RUN)
    ledger.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT name FROM volumes").fetchall() == [("sets",)]
        assert db.execute("PRAGMA user_version").fetchall() == [(17,)], "older launchers cannot read its rows"


TABLES = """
17
runs: id TEXT, job TEXT, spec_json TEXT, provider TEXT, phase TEXT, out_dir TEXT, created_at REAL,
 phase_at REAL, parent TEXT?, offer TEXT?, instance_id TEXT?, host TEXT, usd_per_hour REAL, rented_at
 REAL?, released_at REAL?, meter TEXT, rentals TEXT, charged TEXT?, ledger TEXT, account TEXT,
 clock_ahead_s REAL?, ended_at REAL?, cause TEXT?, detail TEXT, failed_in TEXT?, proofs TEXT,
 destroy_tries INTEGER, step INTEGER, steps INTEGER, image TEXT, boot_s REAL?, steps_per_s REAL?, batch
 TEXT, point TEXT, reserved_usd REAL, started_by TEXT, computer TEXT, home TEXT, leader TEXT, node
 INTEGER, failed_node INTEGER?, held_usd REAL
"""


def test_the_table_that_follows_its_noun_changes_with_the_version_only(path: Path) -> None:
    opened(path).close()
    with sqlite3.connect(path) as db:
        ((version,),) = db.execute("PRAGMA user_version")
        runs = ", ".join(
            f"{name} {kind}{'' if not_null else '?'}"
            for _, name, kind, not_null, *_ in db.execute("PRAGMA table_info(runs)")
        )
    assert [str(version), f"runs: {runs}"] == TABLES.replace("\n ", " ").strip().splitlines(), (
        "the columns changed: raise VERSION in ledger/schema.py, then write them and it here"
    )


def test_a_folder_that_takes_no_writes_gives_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match="cannot write") as caught:
        opened(tmp_path / "file" / "ledger.db")
    assert "XDG_STATE_HOME=" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_ledger_is_named_and_not_overwritten(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("these are my notes, not a database\n" * 50)
    with pytest.raises(StorageError, match="damaged"):
        opened(path)
    assert path.read_text().startswith("these are my notes")


_ON_A_DISK_OF_ITS_OWN = """
import subprocess, sys, time
from dataclasses import replace
from pathlib import Path
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.core import Driver, Phase, Run

folder = Path(sys.argv[1])

def open_ledger():
    return SqliteLedger(folder / "ledger.db", now=time.time, alive=lambda who: True)

def remount(options):
    subprocess.run(["mount", "-o", f"remount,bind,{options}", str(folder)], check=True)

run = Run(id="a", job="j", spec_json="{}", provider="local", phase=Phase.PLAN, out_dir="/o", created_at=1.0,
          phase_at=1.0)
ledger = open_ledger()
ledger.add(run)
ledger.hold("a", Driver(who="me", until=time.time() + 60))
"""

_FULL_DISK = """
try:
    ledger.save(replace(run, spec_json="x" * 1_000_000), who="me")
except StorageError as error:
    print(error, "|", error.hint, "|", open_ledger().get("a") == run)
"""

_READ_ONLY_DISK = """
ledger.close()
remount("ro")
try:
    open_ledger().add(replace(run, id="b"))
except StorageError as error:
    print(error, "|", error.hint)
"""


def test_a_full_disk_gives_one_clear_line_and_loses_no_row(tmp_path: Path) -> None:
    said = _on_a_small_disk(tmp_path, _FULL_DISK)
    assert re.fullmatch(r"no space left for .*ledger.db \| free some space, or .* \| True", said)


def test_a_read_only_home_gives_one_clear_line(tmp_path: Path) -> None:
    said = _on_a_small_disk(tmp_path, _READ_ONLY_DISK)
    assert re.fullmatch(r"cannot write .*ledger.db: .* \| .* make .* writable", said)


def _on_a_small_disk(folder: Path, program: str) -> str:
    """What the program prints on a file system of its own, 256 KiB small."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    alone = ["unshare", *user, "--mount", "sh", "-ec"]
    mount = f"mount -t tmpfs -o size=256k tmpfs '{folder}'"
    parts.require("disks")
    command = [
        *alone,
        mount + '; exec "$@"',
        "sh",
        sys.executable,
        "-c",
        _ON_A_DISK_OF_ITS_OWN + program,
        folder,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


FILES = (database.__file__, sql.__file__, sqlite.__file__, contextlib.__file__)


def interrupted(work: Callable[[], object], line: int) -> bool:
    """Do the work until so many lines of the ledger were reached; whether it came to that."""
    seen = 0

    def on_line(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if frame.f_code.co_filename in FILES and event == "line":
            seen += 1
            if seen == line:
                raise KeyboardInterrupt
        return on_line

    before = sys.gettrace()
    sys.settrace(on_line)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_of_a_write_leaves_the_ledger_whole_and_free(path: Path) -> None:
    here, elsewhere = opened(path), opened(path)
    line, was_interrupted = 0, True
    while was_interrupted:
        line += 1
        run = replace(RUN, id=f"run-{line}")
        was_interrupted = interrupted(lambda run=run: here.add(run), line)  # type: ignore[misc]
        for ledger in (elsewhere, here):
            other = replace(RUN, id=f"{run.id}-{id(ledger)}")
            ledger.add(other)
            ledger.add_event(Event(run_id=other.id, at=0.0, phase=Phase.PLAN, text="hello"))
        assert {run.id for run in elsewhere.runs()} == {run.id for run in here.runs()}
    assert line > 10
    assert here.get(f"run-{line}").id == elsewhere.get(f"run-{line}").id


RUNS, NAME = 2_000, "wide"
STEPS = 20_000
"""Instructions of SQLite's machine that are enough for a few rows, and not for those of all runs."""


@pytest.fixture
def ledger(path: Path) -> Iterator[SqliteLedger]:
    """A batch whose points have ended, but for the last one."""
    with closing(opened(path)) as ledger:
        limits = BatchLimits(usd=1000.0)
        spec = BatchSpec(name=NAME, job="job.yaml", limits=limits)
        batch = Batch(name=NAME, spec=spec, provider="vast", folder="/out", created_at=0.0, opened_at=0.0)
        ledger.batches.submit(batch, [])
        ended = [
            ended_run(id=f"run-{n}", batch=NAME, point=f"p{n}", created_at=float(n)) for n in range(RUNS)
        ]
        rows = [*ended[:-1], replace(ended[-1], phase=Phase.TRAIN, released_at=None)]
        written = [run_to_row(one) | {"held_usd": 0.5} for one in rows]
        with ledger.database.writing(None):
            ledger.database.execute_many(insert_statement("runs", written[0]), written)
        yield ledger


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda ledger: ledger.runs(open_only=True, batch=NAME, members=True), id="open"),
        pytest.param(lambda ledger: ledger.runs(open_only=True, batch=NAME), id="open, node 0"),
        pytest.param(lambda ledger: ledger.runs(batch=NAME, point="p7", members=True), id="of a point"),
        pytest.param(lambda ledger: ledger.runs(batch=NAME, point="p7"), id="of a point, node 0"),
        pytest.param(lambda ledger: ledger.runs(parent="run-7"), id="attempts"),
        pytest.param(lambda ledger: ledger.runs(newest=10), id="newest"),
        pytest.param(lambda ledger: ledger.batches.get(NAME), id="batch"),
    ],
)
def test_each_poll_reads_few_rows(ask: Callable[[SqliteLedger], object], ledger: SqliteLedger) -> None:
    assert _steps_of(ledger, lambda: ask(ledger)) < STEPS


def test_the_sum_of_a_budget_is_read_from_an_index(ledger: SqliteLedger) -> None:
    assert ledger.batches.held_usd(NAME) == pytest.approx(0.5 * RUNS)
    assert ledger.use_of(Budget(name="b", usd=1.0, batch=NAME)).held_usd >= 0.5 * (RUNS - 1)
    query = "EXPLAIN QUERY PLAN SELECT SUM(held_usd) FROM runs WHERE batch = 'wide' AND phase = 'ended'"
    plan = [str(row[3]) for row in _database(ledger).execute(query)]
    assert plan == ["SEARCH runs USING COVERING INDEX runs_held (batch=? AND phase=?)"]


def test_runs_are_found_by_cause_and_by_batch_as_before(ledger: SqliteLedger) -> None:
    assert len(ledger.runs(batch=NAME)) == RUNS
    assert ledger.runs(batch="other", open_only=True) == []
    assert ledger.runs(causes=[Cause.LOST], batch=NAME) == []
    assert [run.point for run in ledger.runs(open_only=True, batch=NAME)] == [f"p{RUNS - 1}"]


def _steps_of(ledger: SqliteLedger, work: Callable[[], object]) -> int:
    """The instructions of SQLite's machine that the work takes, in hundreds."""
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 100
        return 0

    _database(ledger).set_progress_handler(count, 100)
    work()
    _database(ledger).set_progress_handler(None, 0)
    return steps


def _database(ledger: SqliteLedger) -> sqlite3.Connection:
    assert isinstance(ledger.database, SqliteDatabase)
    return ledger.database._db
