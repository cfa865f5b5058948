"""Batch: many short runs on one emulated Vast under one budget, driven by one launcher, faults in a tenth."""

from __future__ import annotations

import contextlib
import heapq
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figures import Claim, at_most, tell
from launcher.providers.vast.limits import LIMITS
from tests.e2e.market import LOADING, machines
from tests.e2e.terminal import Launch, Terminal
from tests.emulators.vast import VastEmulator

NONE = at_most(0)
_SHARE_USD = 0.5
_END_S = 6 * 3600.0
_LOOK_S = 0.2
_JOB = """\
name: short
resources: {gpus: 0}
ranks: 1
limits: {hours: 0.2, usd: %(share)s}
command: python -c "print('value {n}'); raise SystemExit({n} %% 10 == 3)"
success: {log: "value"}
"""
_BATCH = """\
name: short
job: job.yaml
grid: {n: [%(values)s]}
limits: {usd: %(usd)s, parallel: %(parallel)d, stop: {same_cause: 100000}}
"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a batch left."""

    wall_s: float
    cpu_s: float
    most_mb: float
    most_held_usd: float
    rows: Sequence[Mapping[str, Any]]
    """The runs, as `status --json` has them."""
    verdicts: Mapping[str, int]
    left: int
    refused: int
    rentals: int
    bill_usd: float
    ledger_usd: float


def run(points: int = 40, parallel: int = 10) -> bool:
    """Print what a batch of so many points took. True when every limit was kept."""
    seen = measure(points, parallel)
    mean_s = sum(row["ended_at"] - row["created_at"] for row in seen.rows) / len(seen.rows)
    bound_s = max(points * mean_s / parallel, seen.rentals * LIMITS["create"].seconds)
    budget = _SHARE_USD * (parallel + 1)
    claims = [
        Claim(points - sum(seen.verdicts.values()), "points without a verdict", NONE),
        Claim(seen.left, "machines left", NONE),
        Claim(seen.rentals - len(seen.rows), "rented beyond one a run", NONE),
        Claim(seen.refused, "calls refused", NONE),
        Claim(max(0.0, seen.most_held_usd - budget), "dollars held beyond the budget", NONE),
        Claim(seen.wall_s / bound_s, "of the time that parallel runs or Vast's pace allow", at_most(1.3)),
        Claim(_longest_wait_s(seen.rows, parallel), "s that a free slot waited", at_most(2.0)),
        Claim(seen.most_mb, "MB of memory", at_most(250)),
        Claim(seen.cpu_s / seen.wall_s, "of a core", at_most(0.5)),
    ]
    told = (
        f"{points} points, {parallel} at once in {seen.wall_s:.0f} s, {seen.rentals} machines; "
        f"{seen.cpu_s / points:.2f} s of the launcher's CPU a run; {dict(seen.verdicts)}   n=1"
    )
    print(f"ledger against bill      {seen.ledger_usd / seen.bill_usd - 1:+.2%}")
    return tell("batch", told, *claims)


def measure(points: int, parallel: int) -> Seen:
    """Drive a batch of so many points from its submit to its end."""
    vast = VastEmulator(machines(parallel + 10), pace=LOADING)
    with tempfile.TemporaryDirectory(prefix="batch-") as folder, vast:
        terminal = Terminal(Path(folder), **vast.variables)
        try:
            began = time.monotonic()
            launch = terminal.start(*_submit(Path(folder), points, parallel))
            cpu_s, most_mb, most_held_usd = _watch(launch, terminal)
            launch.end(within_s=60)
            return Seen(
                wall_s=time.monotonic() - began,
                cpu_s=cpu_s,
                most_mb=most_mb,
                most_held_usd=most_held_usd,
                rows=terminal.type("status", "--json").json()["runs"],
                verdicts=_verdicts(terminal),
                left=len(vast.instances),
                refused=vast.limits.refused,
                rentals=len(vast.billing.meters),
                bill_usd=vast.billing.total_usd(),
                ledger_usd=terminal.type("cost", "--json").json()["usd"],
            )
        finally:
            terminal.clean()


def _submit(folder: Path, points: int, parallel: int) -> Sequence[str]:
    (folder / "job.yaml").write_text(_JOB % {"share": _SHARE_USD})
    values = ", ".join(map(str, range(points)))
    usd = _SHARE_USD * (parallel + 1)
    (folder / "batch.yaml").write_text(_BATCH % {"values": values, "usd": usd, "parallel": parallel})
    return ("batch", "submit", "batch.yaml", "--provider", "vast", "-y")


def _watch(launch: Launch, terminal: Terminal) -> tuple[float, float, float]:
    """CPU seconds, memory in MB and dollars held at most, until the launcher ends."""
    process = psutil.Process(launch.process.pid)
    cpu_s = most_mb = most_held_usd = 0.0
    until, look = time.monotonic() + _END_S, 0
    while launch.process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            cpu_s, most_mb = times.user + times.system, max(most_mb, process.memory_info().rss / 1e6)
        if look % 50 == 0 and (status := terminal.type("batch", "status", "short", "--json")).exit_code == 0:
            most_held_usd = max(most_held_usd, status.json()["usd"] + status.json()["reserved_usd"])
        look += 1
        time.sleep(_LOOK_S)
    return cpu_s, most_mb, most_held_usd


def _verdicts(terminal: Terminal) -> Mapping[str, int]:
    points = terminal.type("batch", "results", "short", "--json").json()["points"]
    verdicts = [point["verdict"] for point in points if point["verdict"]]
    return {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}


def _longest_wait_s(rows: Sequence[Mapping[str, Any]], parallel: int) -> float:
    """How long a slot that had become free waited for its next run, at most."""
    free: list[float] = []
    longest = 0.0
    for row in sorted(rows, key=lambda row: row["created_at"]):
        if len(free) == parallel:
            longest = max(longest, row["created_at"] - heapq.heappop(free))
        heapq.heappush(free, row["ended_at"])
    return longest
