"""Batch: many short runs on one emulated Vast under one budget, driven by one launcher, faults in a tenth.

The launcher is the real one, from its command line to every call and every SSH session. Vast is the
emulator, at the pace that Vast documents. Its boxes are played by a script (tests/emulators/played_box.py): a
thousand with processes of their own would keep two cores busy for hours. For all of them time passes SPEED
times as fast. On a computer that is busy with other things CPU seconds and counts hold, the rest does not.
"""

from __future__ import annotations

import heapq
import logging
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks.fast_vastrun import variables
from benchmarks.figures import Claim, at_most, tell
from launcher.api.batches import states_in
from launcher.core import Run
from launcher.core.bills import cost_usd
from launcher.ledger.sqlite import SqliteLedger
from launcher.providers.vast.limits import LIMITS
from tests.emulators.clock import Clock
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.played_box import PlayedBoxes
from tests.emulators.vast import VastEmulator
from tests.fakebox import Training
from tests.launcher.terminal import CRASH

POINTS, PARALLEL, SPEED = 40, 10, 4.0
NONE = at_most(0)
_SHARE_USD, _POINT_USD = 0.5, 0.02
"""What a run may cost, and more than it does."""
_EVERY = 50
"""Each of five troubles befalls one run in so many."""
_TRAINS_S = 20.0
_LOOK_S = 0.05
_PACE = Pace(created_s=4, loading_s=32, restart_s=60, stop_s=5, result_s=1.5)
_JOB = f"""\
name: short
resources: {{gpus: 0, disk_gb: 20, interruptible: true}}
ranks: 2
limits: {{hours: 0.5, usd: {_SHARE_USD}}}
retry: {{preempted: 1}}
train: {{steps: 10, checkpoint_every: 4}}
"""
_BATCH = """\
name: short
job: job.yaml
grid: {train.seed: [%(values)s]}
limits: {usd: %(usd)s, parallel: %(parallel)d, stop: {same_cause: 100000, failed: 1.0}}
"""


@dataclass(kw_only=True)
class Watched:
    """What was seen of a launcher while it drove. Seconds are the computer's."""

    submit_s: float = 0.0
    submit_cpu_s: float = 0.0
    """Until the points stood in the ledger."""
    cpu_s: float = 0.0
    most_mb: float = 0.0
    most_threads: int = 0
    most_held_usd: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a batch left. Seconds are those of its own time, but for CPU."""

    points: int
    parallel: int
    budget_usd: float
    wall_s: float
    watched: Watched
    runs: Sequence[Run]
    verdicts: Mapping[str, int]
    left: int
    refused: int
    twice: int
    rentals: int
    bill_usd: float
    ledger_usd: float
    faults: Mapping[str, int]

    @property
    def cpu_s_per_run(self) -> float:
        """Without what its start costs."""
        return (self.watched.cpu_s - self.watched.submit_cpu_s) / self.points

    @property
    def bound_s(self) -> float:
        """The time that its runs take on so many slots, or that Vast's pace of creates takes."""
        mean_s = sum((run.ended_at or 0.0) - run.created_at for run in self.runs) / len(self.runs)
        return max(len(self.runs) * mean_s / self.parallel, self.rentals * LIMITS["create"].seconds)

    @property
    def over_budget_s(self) -> float:
        """What was billed beyond the budget, in seconds of the price of all that ran at once."""
        price = max(run.usd_per_hour for run in self.runs) * self.parallel / 3600
        return max(0.0, self.bill_usd - self.budget_usd) / price


def run(points: int = POINTS, parallel: int = PARALLEL, speed: float = SPEED) -> bool:
    """Print what batches of 10, of so many points and of some in between took. True when all limits held."""
    sizes = [size for size in (10, 100) if size < points]
    smaller = [measure(size, min(parallel, size), speed) for size in sizes]
    seen = measure(points, parallel, speed)
    watched, waits = seen.watched, _waits_s(seen.runs, parallel)
    claims = [
        Claim(points - sum(seen.verdicts.values()), "points without a verdict", NONE),
        Claim(seen.left, "machines left", NONE),
        Claim(seen.twice, "rented beyond one a run", NONE),
        Claim(seen.refused, "calls over the documented pace", NONE),
        Claim(max(0.0, round(watched.most_held_usd - seen.budget_usd, 4)), "dollars over the budget", NONE),
        Claim(seen.over_budget_s, "s of price billed beyond it", at_most(60)),
        Claim(
            abs(seen.ledger_usd / seen.bill_usd - 1), "of the bill between it and the ledger", at_most(0.005)
        ),
        Claim(watched.submit_cpu_s, f"CPU s until {points} points were submitted", at_most(5)),
        Claim(watched.most_mb, "MB of memory", at_most(250)),
        Claim(watched.cpu_s / seen.wall_s, f"of a core at {parallel} at once", at_most(0.5)),
        Claim(seen.wall_s / seen.bound_s, "of the time that slots or Vast's pace allow", at_most(1.3)),
        Claim(
            waits[int(0.99 * (len(waits) - 1))] if waits else 0.0,
            "s that a free slot waited, p99",
            at_most(2),
        ),
    ]
    told = (
        f"{points} points, {parallel} at once in {seen.wall_s:.0f} s at {speed:g} times the speed, "
        f"{seen.rentals} machines, {watched.most_threads} threads; {dict(seen.verdicts)}; "
        f"{sum(seen.faults.values())} faults   n=1"
    )
    print(f"submitted in             {watched.submit_s:.1f} s by this computer's clock")
    print(f"struck                   {dict(seen.faults)}")
    tell("batch", told)
    kept = [tell("batch", "", claim) for claim in claims]
    return all([*kept, _tell_growth([*smaller, seen])])


def _tell_growth(found: Sequence[Seen]) -> bool:
    costs = ", ".join(f"{seen.points}: {seen.cpu_s_per_run:.3f}" for seen in found)
    growth = found[-1].cpu_s_per_run / found[0].cpu_s_per_run
    limit = at_most(1.2) if found[-1].points >= 100 else None
    return tell(
        "batch, by its size", f"CPU s a run, of {costs}", Claim(growth, "of that of the smallest", limit)
    )


def measure(points: int, parallel: int, speed: float) -> Seen:
    """Drive a batch of so many points from its submit to its end."""
    for name in ("paramiko", "asyncio"):  # connections that end with their machine are no news
        logging.getLogger(name).setLevel(logging.CRITICAL)
    clock = Clock(speed)
    boxes = PlayedBoxes(clock, _training)
    machines = [Machine(id=41000 + n, gpu_usd=0.4 + n / 1e4, inet_down=9000.0) for n in range(parallel + 100)]
    budget_usd = round(_SHARE_USD * parallel + _POINT_USD * points, 2)
    vast = VastEmulator(machines, clock=clock, pace=_PACE, make_box=boxes.make, credit_usd=10_000.0)
    with tempfile.TemporaryDirectory(prefix="batch-", ignore_cleanup_errors=True) as folder, vast:
        _write(Path(folder), points, parallel, budget_usd)
        _add_faults(vast)
        began = clock.now()
        watched = _Watch(Path(folder), vast, clock).drive()
        wall_s = clock.now() - began
        with closing(_ledger(Path(folder), clock)) as ledger:
            runs = ledger.runs(batch="short")
            verdicts = Counter(state.verdict for state in states_in(ledger, "short") if state.verdict)
        labels = Counter(meter.label for meter in vast.billing.meters.values())
        return Seen(
            points=points,
            parallel=parallel,
            budget_usd=budget_usd,
            wall_s=wall_s,
            watched=watched,
            runs=runs,
            verdicts={str(verdict): count for verdict, count in verdicts.items()},
            left=len(vast.instances),
            refused=vast.limits.refused,
            twice=sum(count - 1 for count in labels.values()),
            rentals=len(vast.billing.meters),
            bill_usd=vast.billing.total_usd(),
            ledger_usd=sum(cost_usd(one, clock.now()) for one in runs),
            faults=Counter(vast.faults.struck),
        )


class _Watch:
    """One launcher, looked at while it works."""

    def __init__(self, folder: Path, vast: VastEmulator, clock: Clock) -> None:
        self._folder, self._vast = folder, vast
        self._environ = {
            **os.environ,
            **vast.variables,
            **variables(clock),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CONFIG_HOME": str(folder / "config"),
        }
        self._known: set[int] = set()

    def drive(self) -> Watched:
        """Start it and return what was seen until it ended."""
        words = ("batch", "submit", str(self._folder / "batch.yaml"), "--provider", "vast", "-y")
        began, watched = time.monotonic(), Watched()
        with (self._folder / "stderr").open("w+") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fast_vastrun", *words, "--out", str(self._folder / "out")],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
            try:
                while process.poll() is None:
                    with suppress(psutil.Error):
                        self._look(psutil.Process(process.pid), watched)
                    if not watched.submit_s and self._held_usd() is not None:
                        watched.submit_s, watched.submit_cpu_s = time.monotonic() - began, watched.cpu_s
                    watched.most_held_usd = max(watched.most_held_usd, self._held_usd() or 0.0)
                    self._outbid()
                    time.sleep(_LOOK_S)
            finally:
                process.kill()
                process.wait()
            if not watched.submit_s:
                raise RuntimeError(f"nothing was submitted: {(self._folder / 'stderr').read_text()}")
        return watched

    def _look(self, process: psutil.Process, watched: Watched) -> None:
        times = process.cpu_times()
        watched.cpu_s = times.user + times.system
        watched.most_threads = max(watched.most_threads, process.num_threads())
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+)", status)
        watched.most_mb = max(watched.most_mb, int(peak[1]) * 1024 / 1e6 if peak else 0.0)

    def _held_usd(self) -> float | None:
        """What the batch's runs hold of its budget, as the ledger has it; None before there is a batch."""
        path = self._folder / "state" / "vastrun" / "ledger.db"
        if not path.exists():
            return None
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            if db.execute("SELECT COUNT(*) FROM points").fetchone()[0]:
                return float(db.execute("SELECT TOTAL(held_usd) FROM runs").fetchone()[0])
        return None

    def _outbid(self) -> None:
        """Somebody bids more for one machine in so many, once it trains."""
        with self._vast.lock:
            for instance in self._vast.instances:
                if instance.id not in self._known:
                    self._known.add(instance.id)
                    if len(self._known) % _EVERY == 8:
                        self._vast.faults.add("outbid", instance_id=instance.id, seconds=_TRAINS_S / 2)


def _training(number: int) -> Training:
    crashes = number % _EVERY == _EVERY - 1
    return replace(CRASH, seconds=_TRAINS_S) if crashes else Training(seconds=_TRAINS_S)


def _add_faults(vast: VastEmulator) -> None:
    """Boots that fail, offers that are gone, and answers that get lost although a machine was rented."""
    vast.faults.add("oci_failure", after=4, every=_EVERY)
    vast.faults.add("no_such_ask", after=6, every=_EVERY)
    vast.faults.add("no_answer_done", endpoint="create", after=9, every=_EVERY)


def _write(folder: Path, points: int, parallel: int, budget_usd: float) -> None:
    (folder / "job.yaml").write_text(_JOB)
    values = ", ".join(map(str, range(points)))
    (folder / "batch.yaml").write_text(_BATCH % {"values": values, "usd": budget_usd, "parallel": parallel})


def _ledger(folder: Path, clock: Clock) -> SqliteLedger:
    return SqliteLedger(folder / "state" / "vastrun" / "ledger.db", now=clock.now, alive=lambda _: False)


def _waits_s(runs: Sequence[Run], parallel: int) -> list[float]:
    """How long slots that had become free waited for their next runs, the shortest first."""
    free: list[float] = []
    waits = []
    for one in sorted(runs, key=lambda run: run.created_at):
        if len(free) == parallel:
            waits.append(max(0.0, one.created_at - heapq.heappop(free)))
        heapq.heappush(free, one.ended_at or one.created_at)
    return sorted(waits)
