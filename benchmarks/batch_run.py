"""One batch on an emulated Vast with played boxes, from its submit to its end, and what was seen of it."""

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
from tests.emulators.clock import Clock
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.played_box import PlayedBoxes
from tests.emulators.vast import VastEmulator
from tests.fakebox import Training
from tests.launcher.terminal import CRASH
from vastrun.launcher.api.batches import states_in
from vastrun.launcher.core import Event, Phase, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.providers.vast.limits import LIMITS

_SHARE_USD, _POINT_USD = 0.5, 0.08
"""What a run may cost, and more than it does."""
_EVERY = 50
"""Each of five troubles befalls one run in so many."""
_TRAINS_S = 20.0
_LOOK_S = 0.05
_PACE = Pace(created_s=4, loading_s=32, restart_s=60, result_s=1.5)
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
    max_mb: float = 0.0
    max_threads: int = 0
    max_held_usd: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a batch left. Seconds are those of its own time, but for CPU."""

    points: int
    parallel: int
    budget_usd: float
    wall_s: float
    watched: Watched
    runs: Sequence[Run]
    had_at: Mapping[str, float]
    """When a run had its machine, of those that had one. The provider counts it from before that."""
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
    def drift(self) -> str:
        """By how much the ledger is above the bill. A launcher that waits for the computer adds to it."""
        over_usd = self.ledger_usd - self.bill_usd
        seconds = over_usd / max(run.usd_per_hour for run in self.runs) * 3600 / self.rentals
        return f"ledger {over_usd / self.bill_usd:+.2%} ({seconds:+.1f} s a machine)"

    @property
    def over_budget_s(self) -> float:
        """What was billed beyond the budget, in seconds of the price of all that ran at once."""
        price = max(run.usd_per_hour for run in self.runs) * self.parallel / 3600
        return max(0.0, self.bill_usd - self.budget_usd) / price


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
            had_at = {run.id: at for run in runs if (at := _had_at(ledger.events(run.id))) is not None}
            verdicts = Counter(state.verdict for state in states_in(ledger, "short") if state.verdict)
        labels = Counter(meter.label for meter in vast.billing.meters.values())
        return Seen(
            points=points,
            parallel=parallel,
            budget_usd=budget_usd,
            wall_s=wall_s,
            watched=watched,
            runs=runs,
            had_at=had_at,
            verdicts={str(verdict): count for verdict, count in verdicts.items()},
            left=len(vast.instances),
            refused=vast.limits.refused,
            twice=sum(count - 1 for count in labels.values()),
            rentals=len(vast.billing.meters),
            bill_usd=vast.billing.total_usd(),
            ledger_usd=sum(cost_usd(one, clock.now()) for one in runs),
            faults=Counter(vast.faults.struck),
        )


def _had_at(events: Sequence[Event]) -> float | None:
    """The last that the phase `rent` tells of is the machine."""
    return max((event.at for event in events if event.phase is Phase.RENT), default=None)


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
        watched, began = Watched(), time.monotonic()
        words = ("submit", str(self._folder / "batch.yaml"), "--provider", "vast", "-y")
        words += ("--out", str(self._folder / "out"))
        with (self._folder / "stderr").open("w") as err:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.fast_vastrun", "batch", *words],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=err,
            )
        try:
            while process.poll() is None:
                with suppress(psutil.Error, OSError):
                    self._look(psutil.Process(process.pid), watched)
                held_usd = self._held_usd()
                if not watched.submit_s and held_usd is not None:
                    watched.submit_s, watched.submit_cpu_s = time.monotonic() - began, watched.cpu_s
                watched.max_held_usd = max(watched.max_held_usd, held_usd or 0.0)
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
        watched.max_threads = max(watched.max_threads, process.num_threads())
        status = Path(f"/proc/{process.pid}/status").read_text()
        peak = re.search(r"VmHWM:\s+(\d+)", status)
        watched.max_mb = max(watched.max_mb, int(peak[1]) * 1024 / 1e6 if peak else 0.0)

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
    vast.faults.add("never_scheduled", after=4, every=_EVERY)
    vast.faults.add("no_such_ask", after=6, every=_EVERY)
    vast.faults.add("no_answer_done", endpoint="create", after=9, every=_EVERY)


def _write(folder: Path, points: int, parallel: int, budget_usd: float) -> None:
    (folder / "job.yaml").write_text(_JOB)
    values = ", ".join(map(str, range(points)))
    (folder / "batch.yaml").write_text(_BATCH % {"values": values, "usd": budget_usd, "parallel": parallel})


def _ledger(folder: Path, clock: Clock) -> SqliteLedger:
    return SqliteLedger(folder / "state" / "vastrun" / "ledger.db", now=clock.now, alive=lambda _: False)
