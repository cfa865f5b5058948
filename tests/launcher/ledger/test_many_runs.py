"""A ledger of many runs: what a launcher asks all the time reads a few rows, however many there are."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.runs import ended_run
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchSpec, Budget
from vastrun.launcher.ledger.database import insert_statement
from vastrun.launcher.ledger.schema import run_to_row
from vastrun.launcher.ledger.sqlite import SqliteDatabase, SqliteLedger

RUNS, NAME = 2_000, "wide"
STEPS = 20_000
"""Instructions of SQLite's machine that are enough for a few rows, and not for those of all runs."""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """A batch whose points have ended, but for the last one."""
    with closing(SqliteLedger(tmp_path / "ledger.db", now=lambda: 0.0, alive=lambda _: True)) as ledger:
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
