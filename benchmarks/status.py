"""Status: the command on a ledger of 10,000 runs, in SQLite and in PostgreSQL. Seconds are CPU seconds."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from benchmarks.figures import Claim, max_limit, report_claims, rounds_of
from tests.jobs import train_job
from tests.launcher.ledger.postgres import served
from vastrun.launcher.app import App
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Offer, Phase, Run
from vastrun.launcher.ledger.schema import COLUMNS, run_to_row
from vastrun.launcher.ledger.sql import SqlLedger

RUNS, OPEN, ROUNDS = 10_000, 20, 5
LIMIT_S = 0.3
RUN = Run(
    id="run",
    job="grid",
    spec_json=dump_job(train_job()),
    provider="vast",
    phase=Phase.ENDED,
    out_dir="/home/ada/runs/run",
    created_at=1_800_000_000.0,
    phase_at=1_800_000_000.0,
    offer=Offer(
        id="1",
        host="2",
        gpu_name="RTX 4090",
        gpus=2,
        gpu_memory_gb=24.0,
        disk_gb=100.0,
        usd_per_hour=0.5,
        expected_usd=1.0,
        loading_usd=0.1,
        description="2 x RTX 4090",
    ),
    rented_at=1_800_000_000.0,
    released_at=1_800_003_600.0,
    usd_per_hour=0.5,
    started_by="ada",
)


def run(runs: int = RUNS) -> bool:
    """Print what `status` takes on both ledgers, and on empty ones: Python's start. True when in time."""
    with tempfile.TemporaryDirectory(prefix="status-") as name, served() as server:
        folder = Path(name)
        full, empty = ({"XDG_STATE_HOME": str(folder / what)} for what in ("full", "empty"))
        places = {
            "SQLite": (full, empty),
            "PostgreSQL": tuple({**full, "VASTRUN_LEDGER": server.database()} for _ in range(2)),
        }
        ways = []
        for crowded, bare in places.values():
            _fill(crowded, runs)
            ways += [_takes(crowded, "status"), _takes(bare, "status"), _takes(crowded, "status", "--all")]
        found = [min(values) for values in zip(*rounds_of(ways, ROUNDS), strict=True)]
    passed = []
    for number, ledger in enumerate(places):
        usual_s, start_s, all_s = found[3 * number : 3 * number + 3]
        summary = (
            f"{ledger}, {runs:,} runs: {usual_s:.3f} s, on an empty ledger {start_s:.3f} s; "
            f"--all {all_s:.2f} s   CPU, the least of n={ROUNDS}"
        )
        passed.append(
            report_claims("status", summary, Claim(usual_s - start_s, "s for the list", max_limit(LIMIT_S)))
        )
    return all(passed)


def _fill(place: dict[str, str], runs: int) -> None:
    """In one transaction: what `add` does for each is not what is measured."""
    ledger = App(place).ledger()
    assert isinstance(ledger, SqlLedger)
    ended = [replace(RUN, id=f"run-{n:05d}", created_at=RUN.created_at + n) for n in range(runs)]
    rows = [replace(one, phase=Phase.TRAIN, released_at=None) for one in ended[:OPEN]] + ended[OPEN:]
    names, values = ", ".join(COLUMNS), ", ".join(f":{name}" for name in COLUMNS)
    with ledger.database.writing(None):
        ledger.database.execute_many(
            f"INSERT INTO runs ({names}) VALUES ({values})",
            [run_to_row(one) | {"held_usd": 0.5} for one in rows],
        )


def _takes(place: dict[str, str], *words: str) -> Callable[[], float]:
    def take() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", "from vastrun.launcher.cli import main; main()", *words]
        subprocess.run(command, env={**os.environ, **place}, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return take
