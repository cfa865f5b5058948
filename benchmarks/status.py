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

from benchmarks.figures import Claim, at_most, rounds_of, tell
from launcher.core import Offer, Phase, Run
from launcher.wiring import wire
from tests.launcher.ledger.postgres import served

RUNS, OPEN, ROUNDS = 10_000, 20, 5
LIMIT_S = 0.3
_RUN = Run(
    id="run",
    job="grid",
    spec_json="{}" + " " * 2000,
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
    """Print what `status` takes on both ledgers, and what of it is the start of Python. True when in time."""
    with tempfile.TemporaryDirectory(prefix="status-") as name, served() as server:
        folder, url = Path(name), server.database()
        places = {
            "SQLite": {"XDG_STATE_HOME": str(folder)},
            "PostgreSQL": {"XDG_STATE_HOME": str(folder), "VASTRUN_LEDGER": url},
        }
        for place in places.values():
            _fill(place, runs)
        ways = [
            _takes(place, *words) for place in places.values() for words in (("status",), ("status", "--all"))
        ]
        ways += [_takes(place, "--help") for place in places.values()]
        found = [min(values) for values in zip(*rounds_of(ways, ROUNDS), strict=True)]
    kept = []
    for number, ledger in enumerate(places):
        start_s, usual_s, all_s = found[4 + number], found[2 * number], found[2 * number + 1]
        told = (
            f"{ledger}, {runs:,} runs: {usual_s:.3f} s, of which `vastrun --help` takes {start_s:.3f} s; "
            f"--all {all_s:.2f} s   CPU, the least of n={ROUNDS}"
        )
        kept.append(tell("status", told, Claim(usual_s - start_s, "s for the list", at_most(LIMIT_S))))
    return all(kept)


def _fill(place: dict[str, str], runs: int) -> None:
    ledger = wire(place).ledger()
    for number in range(runs):
        one = replace(_RUN, id=f"run-{number:05d}", created_at=_RUN.created_at + number)
        ledger.add(one if number >= OPEN else replace(one, phase=Phase.TRAIN, released_at=None))


def _takes(place: dict[str, str], *words: str) -> Callable[[], float]:
    def take() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-c", "from launcher.cli import main; main()", *words]
        subprocess.run(command, env={**os.environ, **place}, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return take
