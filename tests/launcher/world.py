"""World: a market, a disk and a clock that outlive the launchers one starts in it."""

import itertools
from pathlib import Path
from typing import Any

from tests.fake_outputs import FakeOutputStore, FakePacker
from tests.fakebox import Training
from tests.fakes import FakeClock, FakeProvider, FakeScreen, FakeUserRequests
from tests.jobs import train_job
from tests.launcher.faults import Fault, Faulty, FaultyProvider, Plan
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Run, UserRequest
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.flow.drive import create_run, drive
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.transcript import recorded

RUN_ID = "calm-heron-3f1a"


class World:
    """Start launchers with `launch` and `resume`; see what is left in `market`, `output_store`, `ledger`."""

    def __init__(
        self, folder: Path, *, training: Training | None = None, spec: JobSpec | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.spec = spec or train_job()
        self.clock = FakeClock()
        self.market = FakeProvider(self.clock, training=training)
        self.output_store = FakeOutputStore()
        self.screen = FakeScreen()
        self.user_requests = FakeUserRequests(self.clock)
        self.dead: set[str] = set()
        self.out_dir = "/nowhere"
        self.active_runs = 1
        """How many runs each launcher says that it drives."""
        self.wrong_by_s = 0.0
        """How far the launchers' clocks are from the true one."""
        self.plan = Plan(self.market, acts={"detach": self._leave})
        # Kept in memory: the launchers of a world are of one process, and a disk would sync at every call.
        self.ledger = SqliteLedger(
            Path(":memory:"), now=self.clock.now, alive=lambda who: who not in self.dead
        )
        self.packer = FakePacker(folder)
        self._numbers = itertools.count(1)

    def expect(self, *faults: Fault) -> None:
        """These faults are to come."""
        self.plan.faults = faults

    def services(self, who: str | None = None) -> Services:
        """A new launcher's tools."""
        parts: dict[str, Any] = {
            "provider": FaultyProvider(self.market, "provider", self.plan),
            "ledger": Faulty(self.ledger, "ledger", self.plan),
            "output_store": Faulty(self.output_store, "output_store", self.plan),
            "packer": Faulty(self.packer, "packer", self.plan),
        }
        who = who or f"host:{next(self._numbers)}:0"
        clock = WrongClock(self.clock, self.wrong_by_s)
        return Services(
            clock=clock,
            screen=self.screen,
            user_requests=self.user_requests,
            who=who,
            active_runs=lambda: self.active_runs,
            **parts,
        )

    def launch(self) -> Run:
        """A launcher begins the run and drives it."""
        services = self.services()
        try:
            return self._drive(self._begun(services), services)
        except BaseException:
            self.dead.add(services.who)
            raise

    def begin(self) -> Run:
        """The run, which nobody drives yet."""
        return self._begun(self.services())

    def resume(self) -> Run:
        """Another launcher drives the run on."""
        services = self.services()
        try:
            return self._drive(self.ledger.get(RUN_ID), services)
        except BaseException:
            self.dead.add(services.who)
            raise

    def _drive(self, run: Run, services: Services) -> Run:
        """As a launcher does it: with what writes its transcript, though not to a disk."""
        with recorded(run, services) as told:
            return drive(run, self.spec, told)

    def _leave(self) -> None:
        self.user_requests.at = {self.clock.now(): UserRequest.DETACH}

    def _begun(self, services: Services) -> Run:
        return create_run(self.spec, dump_job(self.spec), services, run_id=RUN_ID, out_dir=self.out_dir)

    def run(self) -> Run:
        """The row."""
        return self.ledger.get(RUN_ID)

    def rented(self) -> int:
        """How many machines are rented now."""
        return self.market.rented

    def pass_time(self, seconds: float) -> None:
        self.clock.sleep(seconds)


class WrongClock(FakeClock):
    """One that was set forward or back."""

    def __init__(self, true: FakeClock, by_s: float) -> None:
        self._true, self._by_s = true, by_s

    def now(self) -> float:
        return self._true.now() + self._by_s

    def sleep(self, seconds: float) -> None:
        self._true.sleep(seconds)
