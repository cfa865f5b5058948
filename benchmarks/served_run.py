"""Runs of `serve --driver` with one batch of many points: in simulated time, and on an emulated Vast."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from benchmarks import fast_vastrun
from benchmarks.memory import PeakWatch
from benchmarks.simulated_vastrun import PROVIDER, VARIABLE, Findings
from benchmarks.status import RUN
from tests.emulators.clock import Clock
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.played_box import PlayedBoxes
from tests.emulators.vast import VastEmulator
from tests.fakebox import Training
from tests.fakes import FakeClock
from vastrun.launcher.batch.schedule import PointState, states_of
from vastrun.launcher.config import dump_job
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Cause, Phase
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchPoint, BatchSpec, StopRules
from vastrun.launcher.ledger.schema import COLUMNS, run_to_row
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.providers.vast.limits import LIMITS

_NAME = "served"
_SHARE_USD = 0.5
_RUN_S = 60.0
_WINDOW_S = 240.0
_LOOK_S = 0.2
_PACE = Pace(created_s=4, loading_s=32, restart_s=60, stop_s=5, result_s=1.5)
_JOB = f"""\
name: served
resources: {{gpus: 0, disk_gb: 20}}
ranks: 2
limits: {{hours: 0.5, usd: {_SHARE_USD}}}
retry: {{signal: 1, lost: 1}}
train: {{steps: 10, checkpoint_every: 4}}
"""


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a process used from its start to its end."""

    cpu_s: float
    max_mb: float
    """Its largest resident size in MB."""


@dataclass(frozen=True, kw_only=True)
class Simulated:
    """A whole batch in simulated time."""

    used: Used
    findings: Findings
    states: Sequence[PointState]

    @property
    def lost(self) -> int:
        """Points without a verdict."""
        return sum(state.verdict is None for state in self.states)

    @property
    def twice(self) -> int:
        """Points and machines begun twice."""
        return self.findings.twice + _begun_twice(self.states)


@dataclass(frozen=True, kw_only=True)
class OnVast:
    """The last points of a batch on an emulated Vast. Seconds are the emulator's, but for CPU."""

    cpu_s: float
    seconds: float
    """While all slots were taken."""
    at_once: float
    """Mean number of machines then."""
    used: Used
    max_threads: int
    max_files: int
    points: int
    states: Sequence[PointState]
    left: int
    twice: int
    refused: int

    @property
    def lost(self) -> int:
        """Points without a verdict."""
        return sum(state.verdict is None for state in self.states)


def simulate(points: int, parallel: int) -> Simulated:
    """Let `serve --driver` drive a whole batch in simulated time."""
    with (
        tempfile.TemporaryDirectory(prefix="served-", ignore_cleanup_errors=True) as name,
        PeakWatch() as peak,
    ):
        folder = Path(name)
        with closing(_ledger(folder, FakeClock().now)) as ledger:
            _submit(ledger, folder, PROVIDER, points, parallel)
            report = folder / "report.json"
            simulation = {"batch": _NAME, "run_s": _RUN_S, "report": str(report)}
            process = _start(folder, "benchmarks.simulated_vastrun", {VARIABLE: json.dumps(simulation)})
            used = _used_until_end(process, peak)
            if process.returncode or not report.exists():
                raise RuntimeError(f"serve ended with {process.returncode}: {_stderr(folder)}")
            return Simulated(
                used=used, findings=Findings(**json.loads(report.read_text())), states=_states(ledger)
            )


def drive_end(points: int, parallel: int, speed: float, window_s: float = _WINDOW_S) -> OnVast:
    """Let `serve --driver` drive the last points of a batch on an emulated Vast, to its end.

    `window_s`: seconds in which all slots are taken.
    """
    for name in ("paramiko", "asyncio"):  # connections that end with their machine are no news
        logging.getLogger(name).setLevel(logging.CRITICAL)
    clock, create_s = Clock(speed), LIMITS["create"].seconds
    train_s = max(_RUN_S, parallel * create_s - _PACE.created_s - _PACE.loading_s)
    last = min(points, parallel + round(window_s / create_s))
    boxes = PlayedBoxes(clock, lambda _: Training(seconds=train_s))
    machines = [Machine(id=41000 + n, gpu_usd=0.4 + n / 1e4, inet_down=9000.0) for n in range(last + 100)]
    vast = VastEmulator(machines, clock=clock, pace=_PACE, make_box=boxes.make, credit_usd=10_000.0)
    with (
        tempfile.TemporaryDirectory(prefix="served-", ignore_cleanup_errors=True) as name,
        vast,
        PeakWatch() as peak,
    ):
        folder = Path(name)
        with closing(_ledger(folder, clock.now)) as ledger:
            batch = _submit(ledger, folder, "vast", points, parallel)
            _add_ended(ledger, batch, ended=points - last, now=clock.now())
            environ = {**vast.variables, **fast_vastrun.variables(clock)}
            process = _start(folder, "benchmarks.fast_vastrun", environ)
            watch = _Watch(process, vast, clock, ledger, parallel)
            try:
                watch.until_over(points)
            finally:
                process.send_signal(signal.SIGINT)
                used = _used_until_end(process, peak)
            labels = Counter(meter.label for meter in vast.billing.meters.values())
            states = _states(ledger)
            return OnVast(
                cpu_s=watch.cpu_s,
                seconds=watch.seconds,
                at_once=watch.at_once,
                used=used,
                max_threads=watch.max_threads,
                max_files=watch.max_files,
                points=last,
                states=states,
                left=len(vast.instances),
                twice=sum(count - 1 for count in labels.values()) + _begun_twice(states),
                refused=vast.limits.refused,
            )


class _Watch:
    """Looks at the process while it drives, and counts what it uses while all slots are taken."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        vast: VastEmulator,
        clock: Clock,
        ledger: SqliteLedger,
        parallel: int,
    ) -> None:
        self._process, self._vast, self._clock, self._ledger = process, vast, clock, ledger
        self._parallel, self._looks = parallel, 0
        self.cpu_s = self.seconds = self.at_once = 0.0
        self.max_threads = self.max_files = 0

    def until_over(self, points: int) -> None:
        """Return once each point has ended. Raises RuntimeError if the process does before."""
        process = psutil.Process(self._process.pid)
        first = latest = None
        while self._process.poll() is None:
            with suppress(psutil.Error):
                self.max_threads = max(self.max_threads, process.num_threads())
                self.max_files = max(self.max_files, process.num_fds())
                times = process.cpu_times()
                latest = (times.user + times.system, self._clock.now())
            started, is_open = self._runs()
            machines = len(self._vast.instances)
            if first is None and machines >= self._parallel:
                first = latest
            if first is not None and latest is not None and started < points:
                self.cpu_s, self.seconds = latest[0] - first[0], latest[1] - first[1]
                self._looks += 1
                self.at_once += (machines - self.at_once) / self._looks
            if started >= points and not is_open:
                return
            time.sleep(_LOOK_S)
        raise RuntimeError(f"serve ended with {self._process.returncode} before its batch")

    def _runs(self) -> tuple[int, bool]:
        """The number of points that were started, and whether one is open."""
        database = self._ledger.database
        with database.reading():
            (started,) = tuple(database.rows("SELECT COUNT(DISTINCT point) FROM runs")[0])
            (open_runs,) = tuple(database.rows("SELECT COUNT(*) FROM runs WHERE phase <> 'ended'")[0])
        return int(started), bool(open_runs)


def _submit(ledger: SqliteLedger, folder: Path, provider: str, points: int, parallel: int) -> Batch:
    now = ledger.database.now()
    limits = BatchLimits(
        usd=_SHARE_USD * points, parallel=parallel, stop=StopRules(same_cause=points, failed=1.0)
    )
    batch = Batch(
        name=_NAME,
        spec=BatchSpec(name=_NAME, job="job.yaml", limits=limits),
        provider=provider,
        folder=str(folder / "out"),
        created_at=now,
        opened_at=now,
    )
    job = load_job(_JOB, "job.yaml", (), str(folder))
    assert job.train is not None
    seeds = [replace(job, train=replace(job.train, seed=seed)) for seed in range(points)]
    ledger.batches.submit(
        batch,
        [
            BatchPoint(id=f"{seed:06x}", values={"train.seed": seed}, spec_json=dump_job(one))
            for seed, one in enumerate(seeds)
        ],
    )
    return batch


def _add_ended(ledger: SqliteLedger, batch: Batch, *, ended: int, now: float) -> None:
    """Write the runs of the first points as they are after their end. What `add` does is not measured."""
    rows = [
        replace(
            RUN,
            id=f"run-{number:05d}",
            job=batch.name,
            spec_json=point.spec_json,
            batch=batch.name,
            point=point.id,
            phase=Phase.ENDED,
            out_dir=f"{batch.folder}/{number:04d}-{point.id}",
            created_at=now - (ended - number) * LIMITS["create"].seconds,
            rented_at=now - (ended - number) * LIMITS["create"].seconds,
            released_at=now,
            ended_at=now,
            boot_s=60.0,
            steps_per_s=2.0,
            step=10,
            steps=10,
        )
        for number, point in enumerate(ledger.batches.points(batch.name)[:ended])
    ]
    names, values = ", ".join(COLUMNS), ", ".join(f":{name}" for name in COLUMNS)
    with ledger.database.writing(None):
        ledger.database.execute_many(
            f"INSERT INTO runs ({names}) VALUES ({values})",
            [run_to_row(one) | {"held_usd": 0.01} for one in rows],
        )


def _start(folder: Path, program: str, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with (folder / "stderr").open("wb") as err:
        return subprocess.Popen(
            [sys.executable, "-m", program, "serve", "--driver"],
            env={**os.environ, **_places(folder), **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=err,
        )


def _used_until_end(process: subprocess.Popen[bytes], peak: PeakWatch) -> Used:
    """What the process used. Its `ru_maxrss` would be that of this process, which has made all the points."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Used(cpu_s=usage.ru_utime + usage.ru_stime, max_mb=peak.mib * 2**20 / 1e6)


def _stderr(folder: Path) -> str:
    return (folder / "stderr").read_text()[-2000:]


def _places(folder: Path) -> Mapping[str, str]:
    return {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}


def _ledger(folder: Path, now: Callable[[], float]) -> SqliteLedger:
    return SqliteLedger(folder / "state" / "vastrun" / "ledger.db", now=now, alive=lambda _: False)


def _states(ledger: SqliteLedger) -> list[PointState]:
    return states_of(ledger.batches.points(_NAME), ledger.runs(batch=_NAME))


def _begun_twice(states: Sequence[PointState]) -> int:
    """Points started again although a run of theirs had had a machine, attempts not counted."""
    counts = [
        sum(run.parent is None and run.cause is not Cause.NO_OFFER for run in one.runs) for one in states
    ]
    return sum(max(0, count - 1) for count in counts)
