"""Scale: how many changes of runs one ledger takes in a second, from one process and from several at once.

A change is what a launcher writes when something happened to a run: its row, and an event of its diary, each
a transaction of its own. The writers are processes with a run each, as launchers are; they begin together.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from benchmarks.figures import Claim, min_limit, report_claims
from benchmarks.status import RUN
from tests.launcher.ledger.postgres import served
from vastrun.launcher.app import App
from vastrun.launcher.core import Driver, Event, Phase

SECONDS = 3.0
WRITERS = (1, 8, 32)
NEEDED = 10.0
"""Vast lets one key begin a run each 4.5 s; each writes some thirty changes until its end."""


def run() -> bool:
    """Print the changes a second that each ledger took. True when they are enough."""
    passed = []
    with tempfile.TemporaryDirectory(prefix="scale-") as folder, served() as server:
        places = {
            "SQLite": {"XDG_STATE_HOME": folder},
            "PostgreSQL": {"XDG_STATE_HOME": folder, "VASTRUN_LEDGER": server.database()},
        }
        for ledger, place in places.items():
            found = [sum(counts := _write_concurrently(place, writers)) / SECONDS for writers in WRITERS]
            summary = ", ".join(
                f"{writers}: {rate:.0f}" for writers, rate in zip(WRITERS, found, strict=True)
            )
            worst = Claim(found[-1], f"changes a second from {WRITERS[-1]}", min_limit(NEEDED))
            slowest = Claim(min(counts) / SECONDS, f"of the slowest of {WRITERS[-1]}")
            passed.append(
                report_claims("scale", f"{ledger}, by writers at once, {summary}   n=1", worst, slowest)
            )
    return all(passed)


def _write_concurrently(place: dict[str, str], writers: int) -> Sequence[int]:
    """The changes that each of so many processes wrote."""
    command = [sys.executable, "-m", "benchmarks.scale"]
    processes = [
        subprocess.Popen(
            [*command, f"{writers}-{number}"],
            env={**os.environ, **place},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    return [_count_of(process) for process in processes]


def _count_of(writer: subprocess.Popen[str]) -> int:
    assert writer.stdout is not None
    with writer.stdout:
        count = int(writer.stdout.read())
    writer.wait()
    return count


def _write(name: str) -> None:
    """Write changes of a run until the time is over. In: the end of stdin, to begin. Out: their number."""
    with closing(App(dict(os.environ)).ledger()) as ledger:
        one = replace(RUN, id=f"run-{name}", phase=Phase.TRAIN, released_at=None)
        ledger.add(one)
        ledger.hold(one.id, Driver(who=name, until=time.time() + 600.0))
        print("ready", flush=True)
        sys.stdin.read()
        count, began = 0, time.monotonic()
        while time.monotonic() < began + SECONDS:
            ledger.save(replace(one, phase_at=one.phase_at + count), who=name)
            ledger.add_event(Event(run_id=one.id, at=one.created_at + count, phase=one.phase, text="step 10"))
            count += 1
    print(count)


if __name__ == "__main__":
    _write(sys.argv[1])
