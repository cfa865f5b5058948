"""Team: many computers drive the runs of one PostgreSQL ledger, and what became of them; `status` of 10,000.

Vast is the emulator at the pace that Vast documents, its boxes are played, all else is real: each driver is
`vastrun serve --driver` with a state folder of its own and a clock that is up to ten minutes wrong. Drivers
are killed at random, half of them for good, and the database loses its power in the middle. It takes as long
as Vast lets rent: 4.5 s a run, and what a dead driver's runs wait for another one.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Claim, max_limit, report_claims
from benchmarks.status import run as run_status
from benchmarks.team_vastrun import VARIABLE
from tests.emulators.clock import Clock
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.played_box import PlayedBoxes
from tests.emulators.vast import VastEmulator
from tests.fakebox import Training
from tests.launcher.ledger.postgres import PostgresServer, served
from vastrun.launcher.app import App
from vastrun.launcher.config.job_loader import load_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.errors import BudgetError
from vastrun.launcher.run_services import attempts_for

DRIVERS, RUNS = 20, 100
_SHARE_USD = 0.5
_MORE = 6 / 5
"""So many times as many runs are tried as the budget has room for."""
_CREATE_S = 4.5
_WRONG_S = 600.0
_PATIENCE_S = 1800.0
"""Beyond what Vast's pace takes."""
_PACE = Pace(created_s=0.5, loading_s=3, restart_s=60, stop_s=1, result_s=0.5)
_JOB = f"""\
name: short
resources: {{gpus: 0, disk_gb: 20}}
ranks: 2
limits: {{hours: 0.5, usd: {_SHARE_USD}}}
train: {{steps: 10, checkpoint_every: 4}}
"""
_AUDIT = """
CREATE TABLE audit (run_id TEXT, writer TEXT, holder TEXT);
CREATE FUNCTION note_writer() RETURNS trigger AS $$ BEGIN
    INSERT INTO audit SELECT NEW.id, current_setting('application_name'),
        (SELECT split_part(who, ':', 2) FROM drivers WHERE run_id = NEW.id);
    RETURN NEW;
END $$ LANGUAGE plpgsql;
CREATE TRIGGER note_writer AFTER UPDATE ON runs FOR EACH ROW EXECUTE FUNCTION note_writer();
"""
_DOUBLE = "SELECT COUNT(*) FROM audit WHERE holder IS NULL OR writer <> holder"
_WRITERS = "SELECT COUNT(*), COUNT(DISTINCT writer) FROM audit"
NONE = max_limit(0)


@dataclass(kw_only=True)
class Seen:
    """What a team left."""

    begun: int
    refused: int
    reserved_usd: float
    runs: Sequence[Run]
    left: int
    twice: int
    calls_refused: int
    double: int
    writes: int
    writers: int
    kills: int
    wall_s: float
    bill_usd: float
    ledger_usd: float


def run(drivers: int = DRIVERS, runs: int = RUNS, seed: int = 0) -> bool:
    """Print what became of so many runs. True when nothing was lost, doubled or left."""
    seen = measure(drivers, runs, seed)
    verdicts = Counter(str(one.verdict) for one in seen.runs)
    claims = [
        Claim(seen.double, f"of {seen.writes} writes by a launcher that did not drive the run", NONE),
        Claim(seen.twice, "rented beyond one a run", NONE),
        Claim(abs(seen.begun - runs), "reservations lost or doubled", NONE),
        Claim(abs(seen.reserved_usd - runs * _SHARE_USD), "dollars reserved besides", max_limit(1e-6)),
        Claim(sum(one.phase is not Phase.ENDED for one in seen.runs), "runs that did not end", NONE),
        Claim(seen.left, "machines left", NONE),
        Claim(seen.calls_refused, "calls over the documented pace", NONE),
    ]
    summary = (
        f"{drivers} drivers, {seen.kills} kills, {runs} runs of {seen.begun + seen.refused} that were tried, "
        f"in {seen.wall_s:.0f} s; written by {seen.writers} launchers; {dict(verdicts)}; "
        f"ledger {seen.ledger_usd / seen.bill_usd - 1:+.2%} of the bill   n=1"
    )
    passed = [report_claims("team", summary if claim is claims[0] else "", claim) for claim in claims]
    return all([*passed, run_status()])


def measure(drivers: int, runs: int, seed: int) -> Seen:
    """Let so many computers drive so many runs to their ends."""
    for name in ("paramiko", "asyncio"):  # connections that end with their machine are no news
        logging.getLogger(name).setLevel(logging.CRITICAL)
    clock = Clock()
    boxes = PlayedBoxes(clock, lambda _: Training(seconds=20.0))
    machines = [Machine(id=41000 + n, gpu_usd=0.4 + n / 1e4, inet_down=9000.0) for n in range(runs + 50)]
    vast = VastEmulator(machines, clock=clock, pace=_PACE, make_box=boxes.make, credit_usd=10_000.0)
    with (
        tempfile.TemporaryDirectory(prefix="team-", ignore_cleanup_errors=True) as name,
        vast,
        served() as server,
    ):
        folder = Path(name)
        url = server.database()
        environ = {**os.environ, **vast.variables, "VASTRUN_LEDGER": url, "VASTRUN_TEAM_KEY": "k" * 44}
        begun, refused, reserved_usd = _begin_all(environ, folder, runs)
        server.ask(_AUDIT, url)
        fleet = _Fleet(folder, environ, random.Random(seed), drivers)
        began = time.monotonic()
        try:
            fleet.watch(server, _app(environ, folder / "eye"), runs)
        finally:
            fleet.end()
        found = _app(environ, folder / "eye").ledger().runs()
        ((double,),) = server.ask(_DOUBLE, url)
        ((writes, writers),) = server.ask(_WRITERS, url)
        labels = Counter(meter.label for meter in vast.billing.meters.values())
        return Seen(
            begun=begun,
            refused=refused,
            reserved_usd=reserved_usd,
            runs=found,
            left=len(vast.instances),
            twice=sum(count - 1 for count in labels.values()),
            calls_refused=vast.limits.refused,
            double=int(str(double)),
            writes=int(str(writes)),
            writers=int(str(writers)),
            kills=fleet.kills,
            wall_s=time.monotonic() - began,
            bill_usd=vast.billing.total_usd(),
            ledger_usd=sum(cost_usd(one, clock.now()) for one in found),
        )


def _begin_all(environ: dict[str, str], folder: Path, runs: int) -> tuple[int, int, float]:
    """Begin more runs than the budget has room for, from ten computers at once.

    How many were begun, how many refused, and the dollars that are then reserved.
    """
    budget = Budget(name="all runs", usd=runs * _SHARE_USD)
    spec = load_job(_JOB, "job.yaml", (), str(folder))
    results: Counter[str] = Counter()
    lock = threading.Lock()

    def begin(computer: int) -> None:
        app = _app(environ, folder / f"starter-{computer}", budget)
        interrupts = app.interrupts()
        with attempts_for(app, interrupts, began=app.now()) as attempts:
            for number in range(round(runs * _MORE / 10)):
                run_id = f"run-{computer}-{number:03d}"
                out = str(folder / "nowhere" / run_id)
                try:
                    attempts.start(spec, provider="vast", run_id=run_id, out_dir=out)
                    how = "begun"
                except BudgetError:
                    how = "refused"
                with lock:
                    results[how] += 1

    threads = [threading.Thread(target=begin, args=(computer,)) for computer in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    use = _app(environ, folder / "eye").ledger().use_of(budget)
    return results["begun"], results["refused"], use.reserved_usd


def _app(environ: dict[str, str], folder: Path, budget: Budget | None = None) -> App:
    """A computer's, with a state folder and settings of its own."""
    config = folder / "config" / "vastrun"
    config.mkdir(parents=True, exist_ok=True)
    if budget is not None:
        (config / "config.yaml").write_text(f"budget: {{usd: {budget.usd}}}\n")
    return App({**environ, **_places(folder)})


def _places(folder: Path) -> dict[str, str]:
    return {"XDG_STATE_HOME": str(folder / "state"), "XDG_CONFIG_HOME": str(folder / "config")}


class _Fleet:
    """The computers that drive."""

    def __init__(self, folder: Path, environ: dict[str, str], chance: random.Random, drivers: int) -> None:
        self._folder, self._environ, self._chance = folder, environ, chance
        self._computers = 0
        self._alive: list[tuple[int, subprocess.Popen[bytes]]] = []
        self.kills = 0
        for _ in range(drivers):
            self._start(self._new())

    def watch(self, server: PostgresServer, app: App, runs: int) -> None:
        """Kill and restart until all runs have ended."""
        began, bound_s = time.monotonic(), runs * _CREATE_S + _PATIENCE_S
        has_lost_power = False
        kill_at = began + 30.0
        while (now := time.monotonic()) - began < bound_s:
            open_runs = len(app.ledger().runs(open_only=True))
            if not open_runs:
                return
            if open_runs < runs / 2 and not has_lost_power:
                has_lost_power = True
                server.stop(hard=True)
                time.sleep(5.0)
                server.start()
            if now >= kill_at:
                kill_at = now + self._chance.uniform(20.0, 60.0)
                self._kill_one()
            time.sleep(1.0)

    def end(self) -> None:
        """All of them leave, as after Ctrl-C."""
        for _, process in self._alive:
            process.send_signal(signal.SIGINT)
        for _, process in self._alive:
            try:
                process.wait(60.0)
            except subprocess.TimeoutExpired:
                process.kill()

    def _kill_one(self) -> None:
        """A driver dies. The same computer comes back, or another one joins in its stead."""
        computer, process = self._alive.pop(self._chance.randrange(len(self._alive)))
        process.kill()
        process.wait()
        self.kills += 1
        self._start(computer if self._chance.random() < 0.5 else self._new())

    def _new(self) -> int:
        self._computers += 1
        return self._computers

    def _start(self, computer: int) -> None:
        place = self._folder / f"computer-{computer}"
        place.mkdir(exist_ok=True)
        ahead_s = random.Random(computer).uniform(-_WRONG_S, _WRONG_S)
        with (place / "said").open("ab") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.team_vastrun", "serve", "--driver"],
                env={
                    **self._environ,
                    **_places(place),
                    VARIABLE: str(ahead_s),
                    "PYTHONPATH": str(Path.cwd()),
                },
                cwd=place,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )
        self._alive.append((computer, process))
