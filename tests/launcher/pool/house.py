"""A house: real machines of `local`, some of them held, and launchers in threads that drive runs there."""

import contextlib
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil

from tests.e2e.terminal import STUB_TORCH
from tests.fakes import FakeClock, FakeScreen, FakeUserRequests
from tests.launcher.faults import FaultyProvider, Killed, Plan
from tests.waiting import eventually
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.commands.reap import orphans, reap
from vastrun.launcher.core import Origin, Phase, Run, UserRequest
from vastrun.launcher.core.job import JobSpec, Limits, Resources, Success
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.outputs.store import FolderStore
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.launcher.pool.provider import PoolProvider
from vastrun.launcher.ports import Ledger, Provider
from vastrun.launcher.providers.local import LocalProvider


class MortalClock:
    """The computer's own time, for a launcher that may be killed: it is when it next looks at the time."""

    def __init__(self) -> None:
        self.is_killed = False

    def now(self) -> float:
        if self.is_killed:
            raise Killed
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(min(seconds, 0.2))
        self.now()


def program(text: str, *, hours: float = 0.2, memory_gb: float = 0.0) -> JobSpec:
    """A job that runs this Python program in one rank, without torch."""
    return JobSpec(
        name="program",
        resources=Resources(gpus=0, disk_gb=8.0, memory_gb=memory_gb),
        limits=Limits(hours=hours, stall_s=90, start_s=90),
        ranks=1,
        command=("python", "-u", "-c", text),
        success=Success(log="all is well"),
        restarts={},
        env={"PYTHONPATH": str(STUB_TORCH)},
    )


class Drive(threading.Thread):
    """A launcher that drives one run. `killed`: it was, as by SIGKILL."""

    def __init__(self, work: Callable[[MortalClock], Run]) -> None:
        super().__init__(daemon=True)
        self._work, self._clock = work, MortalClock()
        self.run_at_end: Run | None = None
        self.killed = False
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.run_at_end = self._work(self._clock)
        except Killed:
            self.killed = True
        except BaseException as error:  # noqa: BLE001 - shown by `end`
            self.error = error

    def kill(self) -> None:
        """As by SIGKILL."""
        self._clock.is_killed = True
        eventually(lambda: not self.is_alive(), what="the end of a killed launcher")
        assert self.killed, self.error

    def end(self) -> Run:
        """The run as it was left."""
        eventually(lambda: not self.is_alive(), what="the end of a drive")
        assert self.error is None, repr(self.error)
        assert self.run_at_end is not None, "the launcher was killed"
        return self.run_at_end


class House:
    """State and outputs lie below `folder`. Each launcher is a thread with a ledger of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.screen = FakeScreen()
        self.plan = Plan(market=None)  # type: ignore[arg-type]
        """Troubles that are to come for runs on slots."""
        self.dead: set[str] = set()
        self._numbers = itertools.count(1)

    @property
    def ledger(self) -> Ledger:
        """Of this thread: SQLite's connections are not shared."""
        return SqliteLedger(self.folder / "ledger.db", now=time.time, alive=lambda who: who not in self.dead)

    def provider(self, name: str, ledger: Ledger) -> Provider:
        if name == "pool":
            return PoolProvider(
                lambda: ledger.runs(open_only=True),
                lambda other: self.provider(other, ledger),
                lambda _provider, _spec: SpeedHistory(),
                clock=MortalClock(),
            )
        return LocalProvider(self.folder / "boxes", sys.executable, clock=MortalClock(), environ=os.environ)

    def services(self, name: str, origin: Origin, who: str, clock: MortalClock, *, faulty: bool) -> Services:
        ledger = self.ledger
        provider = self.provider(name, ledger)
        return Services(
            provider=FaultyProvider(provider, "provider", self.plan) if faulty else provider,  # type: ignore[arg-type]
            ledger=ledger,
            clock=clock,
            packer=Bundler({}, origin=origin),
            output_store=FolderStore(),
            screen=self.screen,
            user_requests=FakeUserRequests(FakeClock()),
            who=who,
        )

    def drive(self, work: Callable[[Attempts], Run], *, faulty: bool = False) -> Drive:
        """A new launcher is at work."""
        who = f"host:{next(self._numbers)}:0"

        def alone(clock: MortalClock) -> Run:
            attempts = Attempts(
                services_for=lambda name, origin: self.services(name, origin, who, clock, faulty=faulty),
                new_id=lambda: self.new_id("another"),
            )
            try:
                return work(attempts)
            except Killed:
                self.dead.add(who)
                raise

        return Drive(alone)

    def new_id(self, word: str) -> str:
        return f"{word}-owl-{next(self._numbers):04x}"

    def hold(self, job: JobSpec, *, slots: int = 2, idle_s: float = 120.0, hours: float = 1.0) -> Run:
        """A machine takes slots; a launcher drives its run."""
        run_id = self.new_id("held")
        spec = hold_spec(job, slots=slots, hours=hours, usd=None, idle_s=idle_s)
        out = str(self.folder / "runs" / run_id)
        self.holding = self.drive(
            lambda attempts: attempts.drive_to_end(
                attempts.start(spec, provider="local", run_id=run_id, out_dir=out)
            )
        )
        eventually(lambda: self._takes_slots(run_id), what="a machine that takes slots")
        return self.ledger.get(run_id)

    def _takes_slots(self, run_id: str) -> bool:
        assert self.holding.is_alive(), (self.holding.error, self.story())
        return any("takes slots" in event.text for event in self.ledger.events(run_id))

    def launch(self, job: JobSpec, *, faulty: bool = False, provider: str = "pool") -> tuple[str, Drive]:
        """A run of the job, and the launcher that drives it."""
        run_id = self.new_id("calm")
        out = str(self.folder / "runs" / run_id)
        return run_id, self.drive(
            lambda attempts: attempts.drive_to_end(
                attempts.start(job, provider=provider, run_id=run_id, out_dir=out)
            ),
            faulty=faulty,
        )

    def resume(self, run_id: str) -> Run:
        """Another launcher drives the run to its end."""
        run = self.ledger.get(run_id)
        return self.drive(lambda attempts: attempts.resume(run, None)).end()

    def give_back(self, run_id: str) -> Run:
        """The machine is given back: the run that held it, ended."""
        self.ledger.ask(run_id, UserRequest.STOP)
        return self.holding.end()

    def reap(self, provider: str) -> Sequence[str]:
        """The ids of what no open run claims, and is gone now."""
        ledger = self.ledger
        services = self.services(provider, Origin(), "host:reaper:0", MortalClock(), faulty=False)
        return reap(orphans(ledger, services.provider, time.time()), services)

    def slots(self) -> Sequence[str]:
        """The labels of all slots."""
        return [slot.label for slot in self.provider("pool", self.ledger).instances()]

    def waits_for(self, run_id: str, text: str) -> None:
        """Returns when the run's log here holds the text."""
        log = self.folder / "runs" / run_id / "log.txt"

        def look() -> bool:
            ended = [run.id for run in self.ledger.runs() if run.phase is Phase.ENDED]
            assert run_id not in ended, self.story()
            return log.exists() and text in log.read_text()

        eventually(look, what=f"{text!r} in the log of {run_id}")

    def story(self) -> Sequence[str]:
        return [f"{event.run_id} {event.phase}: {event.text}" for event in self.screen.events]

    def leftovers(self) -> list[str]:
        """Processes of any box that are still alive, and boxes that are still there."""
        found = []
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended since it was found
                found.append(f"{process.pid} {process.name()}")
        boxes = self.folder / "boxes"
        return found + [str(path) for path in boxes.glob("*") if path.is_dir()]

    def processes(self, run_id: str) -> list[psutil.Process]:
        """Those of the run's slot."""
        found = []
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.environ().get("VASTRUN_INSTANCE", "").startswith(run_id):
                    found.append(process)
        return found

    def clean(self) -> None:
        """Nothing goes on."""
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                box = process.environ().get("VASTRUN_BOX", "")
                if box.startswith(str(self.folder)) and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found
