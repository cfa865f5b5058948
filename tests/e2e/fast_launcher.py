"""FastLauncher: a launcher of this process on emulated Vast; for both, time passes faster than on a box."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.conformance.assumptions import Value
from tests.e2e.market import machines
from tests.e2e.terminal import STUB_TORCH
from tests.emulators.clock import Clock
from tests.emulators.instance import Pace
from tests.emulators.machines import Machine
from tests.emulators.vast import VastEmulator
from tests.fakes import FakeScreen, FakeUserRequests
from tests.waiting import Watch
from vastrun.launcher.bundle import Bundler
from vastrun.launcher.bundle.archive import CodeStore
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.core import Event, Instance, Origin, RentalOrder, Run, UserRequest
from vastrun.launcher.core.job import JobSpec, Limits, Resources, Success
from vastrun.launcher.flow.services import Services
from vastrun.launcher.guard import GuardThread
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.outputs.store import FolderStore
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.providers.vast.transport import VastAccount

PRINTS = "print('all is well', flush=True)"
WORKS = f"import time; time.sleep(2); {PRINTS}"
LASTS = f"import time; time.sleep(6); {PRINTS}"
WAITS = f"import time; time.sleep(60); {PRINTS}"
_WAKE_S = 0.02


def job(program: str, *, gpus: int = 0, interruptible: bool = False, hours: float = 1.0) -> JobSpec:
    """One rank of that Python program, on any machine, for a dollar at most."""
    return JobSpec(
        name="fast",
        resources=Resources(gpus=gpus, disk_gb=8.0, interruptible=interruptible),
        limits=Limits(hours=hours, usd=1.0),
        ranks=1,
        command=("python", "-c", program),
        success=Success(log="all is well"),
        env={"PYTHONPATH": str(STUB_TORCH)},
    )


class FastClock:
    """The emulator's time, as a launcher's clock."""

    def __init__(self, factor: float) -> None:
        self.emulated = Clock(factor)
        self._factor = factor

    def now(self) -> float:
        return self.emulated.now()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds / self._factor)


@dataclass
class CueScreen(FakeScreen):
    """A screen at which something is done when a text, or a line of a phase, is first shown."""

    cues: dict[str, Callable[[], None]] = field(default_factory=dict)

    def report(self, event: Event) -> None:
        super().report(event)
        if do := self.cues.pop(event.text, None) or self.cues.pop(event.phase, None):
            do()


class Lateness(Watch):
    """How late threads of this process wake up, and Vast answers, at worst: a busy computer adds to both."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self.answer_s = 0.0

    def __enter__(self) -> Self:
        self._looked = time.monotonic()
        return super().__enter__()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Around a question to Vast."""
        began = time.monotonic()
        yield
        self.answer_s = max(self.answer_s, time.monotonic() - began)

    def look(self) -> None:
        now = time.monotonic()
        self.worst_s, self._looked = max(self.worst_s, now - self._looked - _WAKE_S), now


class TimedVast(VastProvider):
    """Whose answers are timed: those that say when a machine began to cost, and when it ended."""

    lateness: Lateness

    def rent(self, *arguments: Any) -> Instance:
        with self.lateness.answering():
            return super().rent(*arguments)

    def instances(self) -> Sequence[Instance]:
        with self.lateness.answering():
            return super().instances()

    def destroy(self, instance_id: str) -> None:
        with self.lateness.answering():
            super().destroy(instance_id)


class FastLauncher:
    """Use it in a `with`. `factor`: how fast time passes; a run's road itself takes some real seconds."""

    def __init__(
        self,
        folder: Path,
        *,
        factor: float = 5.0,
        market: Sequence[Machine] | None = None,
        seen: Mapping[str, Value] | None = None,
    ) -> None:
        """`seen`: what its Vast does otherwise than usual, by assumption."""
        self._folder = folder
        self._clock = FastClock(factor)
        pace = Pace(created_s=1.0, loading_s=2.0)
        self.vast = VastEmulator(market or machines(5), clock=self._clock.emulated, pace=pace, seen=seen)
        self.lateness = Lateness()
        self.guard = GuardThread(1 / factor, now=time.process_time)
        self.screen = CueScreen()
        self.struck_at: float | None = None
        self.ledger = SqliteLedger(Path(":memory:"), now=self._clock.now, alive=lambda _: False)
        self._user_requests = FakeUserRequests(self._clock)
        self._numbers = itertools.count(1)

    def __enter__(self) -> Self:
        self.vast.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.vast.close()

    def strike(self, fault: str, *, cue: str = "", **details: Any) -> None:
        """The fault waits for its chance, from when the launcher shows `cue`; without one, from now."""

        def add() -> None:
            self.vast.faults.add(fault, **details)
            self.struck_at = self._clock.now()

        if cue:
            self.screen.cues[cue] = add
        else:
            add()

    def ask(self, request: UserRequest, *, cue: str, after_s: float) -> None:
        """The user wants that, so long after the launcher shows `cue`."""

        def note() -> None:
            self._user_requests.at = {self._clock.now() + after_s: request}

        self.screen.cues[cue] = note

    def launch(self, spec: JobSpec, *, folder: str = "out") -> list[Run]:
        """The job, driven to its end: all runs so far, the last one first."""
        attempts = Attempts(services_for=self._services, new_id=self._new_id)
        out = str(self._folder / folder)
        with self.lateness:
            attempts.drive_to_end(attempts.start(spec, provider="vast", run_id=self._new_id(), out_dir=out))
        return list(self.ledger.runs())

    def rent_beside(self, spec: JobSpec, label: str) -> int:
        """The id of a machine that somebody else rents on the account."""
        vast = VastProvider(self._account, self._folder / "beside", clock=self._clock)
        offer = vast.search(spec)[-1]
        order = RentalOrder(
            offer=offer, label=label, image="debian:12", disk_gb=8.0, onstart="", env={}, max_usd=0.0
        )
        return int(vast.rent(order).id)

    @property
    def _account(self) -> VastAccount:
        return VastAccount(key=self.vast.account_key, server=self.vast.url, login=self.vast.login)

    def _new_id(self) -> str:
        return f"calm-heron-{next(self._numbers):04x}"

    def _services(self, provider: str, origin: Origin) -> Services:
        assert provider == VastProvider.name
        vast = TimedVast(self._account, self._folder / "state", clock=self._clock)
        vast.lateness = self.lateness
        return Services(
            provider=vast,
            ledger=self.ledger,
            clock=self._clock,
            packer=Bundler({}, origin=origin, codes=CodeStore(self._folder / "codes", set)),
            output_store=FolderStore(),
            screen=self.screen,
            user_requests=self._user_requests,
            guard=self.guard.guarding,
            who=f"host:{next(self._numbers)}:0",
        )
