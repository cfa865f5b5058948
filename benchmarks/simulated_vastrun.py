"""`python -m benchmarks.simulated_vastrun ...`: the command `vastrun` in simulated time, on fake machines.

The command line, the driver, the ledger's file, the outputs on disk, transcripts and pages are the installed
ones. The market, its machines and their shells are the tests' fakes within this process, and a wait takes no
time: the clock jumps to whoever wakes next. It ends by itself once the batch has nothing left to do.
In: the command line; SIMULATION: the batch's name and the seconds of a run. Out: a JSON document in the file
that SIMULATION names.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

from tests.fakebox import FakeBox, Loading, Training
from tests.fakes import FakeProvider
from tests.launcher.batch.virtual_time import VirtualTime
from tests.launcher.terminal import CRASH
from vastrun.launcher.app import App
from vastrun.launcher.cli import cli
from vastrun.launcher.core import Instance, Offer, RentalOrder, UserRequest
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ledger.presence import Presence
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ports import Provider
from vastrun.launcher.ui.interrupts import Interrupts

VARIABLE = "SIMULATION"
PROVIDER = FakeProvider.name
_BOOT_S = 40.0
_CRASHES_EACH, _LOST_EACH = 25, 40
"""One machine in so many has a program that crashes, or is lost while it trains."""
_SETTLE_INTERVAL_S = 5.0


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """What the process is to simulate, and where it leaves its findings."""

    batch: str
    run_s: float
    """Seconds that a training takes."""
    report: str


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What the market saw, and how long it took by the simulated clock."""

    seconds: float
    rentals: int
    twice: int
    """Machines rented beyond one for each run."""
    left: int
    most_at_once: int
    max_threads: int
    max_files: int
    """Open file descriptors."""


def main() -> None:
    """The program."""
    simulation = Simulation(**json.loads(os.environ[VARIABLE]))
    time = VirtualTime()
    market = SimulatedMarket(time, simulation.run_s)
    app = _simulated(App(os.environ), time, market, simulation.batch)
    began = time.now()
    try:
        cli(prog_name="vastrun", obj=app)
    finally:
        findings = Findings(
            seconds=time.now() - began,
            rentals=market.rentals,
            twice=sum(count - 1 for count in market.labels.values()),
            left=market.rented,
            most_at_once=market.most_at_once,
            max_threads=market.max_threads,
            max_files=market.max_files,
        )
        Path(simulation.report).write_text(json.dumps(asdict(findings)))


class SimulatedMarket(FakeProvider):
    """A market without end, which offers each host once. Programs crash and machines are lost by number."""

    def __init__(self, clock: VirtualTime, run_s: float) -> None:
        super().__init__(clock)
        self._run_s, self._hosts, self._settled_at = run_s, 0, 0.0
        self._lost_at: dict[str, float] = {}
        self.labels: Counter[str] = Counter()
        """Number of machines that were rented for each label."""
        self.max_threads = self.max_files = 0

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        self._hosts += 1
        return [
            replace(offer, id=f"{offer.id}-{self._hosts}", host=f"{offer.host}-{self._hosts}")
            for offer in super().search(spec)
        ]

    def rent(self, order: RentalOrder) -> Instance:
        self.labels[order.label] += 1
        is_crash = self.rentals % _CRASHES_EACH == _CRASHES_EACH - 1
        self.training = replace(CRASH if is_crash else Training(), seconds=self._run_s)
        self.loading = {order.offer.host: Loading(seconds=_BOOT_S)}
        instance = super().rent(order)
        if self.rentals % _LOST_EACH == 0:
            self._lost_at[instance.id] = self.clock.now() + _BOOT_S + self._run_s / 2
        self.max_threads = max(self.max_threads, threading.active_count())
        self.max_files = max(self.max_files, len(list(Path("/proc/self/fd").iterdir())))
        return instance

    def machine(self, instance_id: str) -> Instance | None:
        self._advance(instance_id)
        return super().machine(instance_id)

    def box(self, instance_id: str) -> FakeBox:
        self._advance(instance_id)
        return super().box(instance_id)

    def _advance(self, instance_id: str) -> None:
        """Bring one machine up to date. All of them are only every few seconds: there may be hundreds."""
        if instance_id in self._boxes:
            self._boxes[instance_id].advance()

    def _settle(self) -> None:
        now = self.clock.now()
        if 0 <= now - self._settled_at < _SETTLE_INTERVAL_S:
            return
        self._settled_at = now
        super()._settle()
        for instance_id in [one for one, at in self._lost_at.items() if at <= now]:
            self._end(instance_id, self._lost_at.pop(instance_id))


def _simulated(app: App, time: VirtualTime, market: SimulatedMarket, batch: str) -> App:
    @cache
    def ledger() -> SqliteLedger:
        alive = Presence(app.state / "launchers").is_alive
        return SqliteLedger(app.state / "ledger.db", now=time.now, alive=alive)

    def provider(name: str) -> Provider:
        if name != PROVIDER:
            raise UsageError(f"no provider is called '{name}'")
        return market

    def interrupts(
        first: UserRequest = UserRequest.STOP,
        request: UserRequest = UserRequest.NONE,
        until: float | None = None,
        views: bool = False,
    ) -> _SimulatedInterrupts:
        made = _SimulatedInterrupts(
            say=lambda _: None, first=first, request=request, until=until, views=views, now=time.now
        )
        made.time, made.is_over = time, _BatchEnd(ledger, batch)
        return made

    return app.with_changes(
        now=time.now,
        ledger=ledger,
        provider=provider,
        shared_provider=provider,
        interrupts=interrupts,
        workers=time.workers,
        wake_signal=lambda: time,
    )


class _SimulatedInterrupts(Interrupts):
    """Whose sleep is the simulation's, and whose user leaves once the batch is over."""

    time: VirtualTime
    is_over: Callable[[], bool]

    def sleep(self, seconds: float) -> None:
        self.time.sleep(seconds)

    def current(self) -> UserRequest:
        return UserRequest.DETACH if self.is_over() else super().current()


class _BatchEnd:
    """Tells whether the batch was driven, and is not any more."""

    def __init__(self, ledger: Callable[[], SqliteLedger], batch: str) -> None:
        self._ledger, self._batch, self._was_driven = ledger, batch, False

    def __call__(self) -> bool:
        is_driven = self._ledger().batches.is_driven(self._batch)
        self._was_driven = self._was_driven or is_driven
        return self._was_driven and not is_driven


if __name__ == "__main__":
    main()
