"""A batch's world: a market, a ledger and a disk that outlive the launchers which drive batches in it."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from tests.fake_outputs import FakeOutputStore, FakePacker
from tests.fakebox import Training
from tests.fakes import FakeScreen
from tests.jobs import train_job
from tests.launcher.batch.held_market import HeldMarket
from tests.launcher.batch.virtual_time import Killed, VirtualTime
from tests.launcher.faults import FaultyProvider, Plan
from vastrun.launcher.batch.driver import BatchDriver
from vastrun.launcher.batch.schedule import PointState, states_of
from vastrun.launcher.batch.serve_driver import ServeDriver
from vastrun.launcher.batch.shared import BatchServices, RunScreen, SharedRequests
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Instance, Offer, Origin, RentalOrder, Run, UserRequest
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchPoint, BatchProgress, BatchSpec, Budget
from vastrun.launcher.core.errors import NoOfferError, StorageError
from vastrun.launcher.core.job import Hold, JobSpec
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.decisions.history import SpeedHistory
from vastrun.launcher.flow.services import Services
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.notifications import Sender
from vastrun.launcher.pool.provider import PoolProvider
from vastrun.launcher.ports import Ledger, RunThreads

_T = TypeVar("_T")

NAME = "widths"
SHARE_USD = 0.1


class BatchMarket(HeldMarket):
    """Each of its machines trains as `trainings` says for the run's number, else as all do."""

    def __init__(self, clock: VirtualTime, held: Callable[[str], Hold | None]) -> None:
        super().__init__(clock, held)
        self.trainings: list[Training] = []
        self.usual = Training()
        self.by_point: dict[str, Training] = {}
        self.machines = 1000
        """So many can be rented at once; a job of 9 GPUs fits none of them."""
        self.labels: Counter[str] = Counter()
        """How many machines were rented for each."""

    def search(self, spec: JobSpec) -> Sequence[Offer]:
        return [] if spec.resources.gpus == 9 else super().search(spec)

    def rent(self, order: RentalOrder) -> Instance:
        if self.rented >= self.machines:
            raise NoOfferError("somebody was faster")
        self.labels[order.label] += 1
        return super().rent(order)

    def next_training(self, label: str) -> Training:
        return self.trainings.pop(0) if self.trainings else self.usual


class Mortal:
    """What a process reaches the world through: of no effect once it was killed."""

    def __init__(self, part: Any, time: VirtualTime) -> None:
        self._part, self._time = part, time

    def __getattr__(self, name: str) -> Any:
        self._time.must_live()
        return getattr(self._part, name)


class AwayLedger:
    """The ledger, or its batches, which a batch's driver does not reach for a while."""

    def __init__(self, part: Any, is_away: Callable[[], bool]) -> None:
        self._part, self._is_away = part, is_away

    def __getattr__(self, name: str) -> Any:
        if self._is_away():
            raise StorageError("database is locked")
        part = getattr(self._part, name)
        return AwayLedger(part, self._is_away) if name == "batches" else part


class SlowPages(FakeOutputStore):
    """Takes so long to make the pages of a run."""

    def __init__(self, time: VirtualTime, seconds: float) -> None:
        super().__init__()
        self._time, self._seconds = time, seconds

    def describe(self, run: Run, now: float) -> None:
        if self._seconds:
            self._time.sleep(self._seconds)


@dataclass
class FakeBatchScreen:
    """Remembers what was shown."""

    states: list[PointState] = field(default_factory=list)
    progresses: list[BatchProgress] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def ended(self, state: PointState, batch: Batch) -> None:
        self.states.append(state)

    def progress(self, progress: BatchProgress, batch: Batch) -> None:
        self.progresses.append(progress)

    def note(self, text: str) -> None:
        self.notes.append(text)


class BatchWorld:
    """Submit points, drive them with as many launchers as you like, look at what they left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.time = VirtualTime()
        self.market = BatchMarket(self.time, self._hold_of)
        self.screen = FakeBatchScreen()
        self.dead: set[str] = set()
        self.computer = ""
        """The one at which launchers are started now, within a team."""
        self.request = UserRequest.NONE
        """Of the user at the launcher's terminal."""
        self.budgets: tuple[Budget, ...] = ()
        self.notifier: Sender | None = None
        self.settle: Callable[[], None] = lambda: None
        """What replaces counted costs by those of bills that are due."""
        self.pages_s = 0.0
        """How long the pages of a run that has ended take to be made."""
        self.away_until = -math.inf
        """Until then the batch's driver does not reach its ledger."""
        self.plan: Plan | None = None
        """Troubles with the market and its machines that are to come."""
        self.ledger = SqliteLedger(
            Path(":memory:"), now=self.time.now, alive=lambda who: who not in self.dead
        )
        self._ids = itertools.count(1)
        self._launchers = itertools.count(1)

    def submit(
        self,
        count: int,
        *,
        first: int = 1,
        name: str = NAME,
        job: JobSpec | None = None,
        odd: JobSpec | None = None,
        **limits: Any,
    ) -> int:
        """Points `first` and so on, each with a share of `SHARE_USD`; how many of them are new.

        `odd`: the job of the first one.
        """
        shares = {key: limits.pop(key) for key in ("reuse", "pack") if key in limits}
        spec = BatchSpec(name=name, job="job.yaml", limits=BatchLimits(**limits), **shares)
        now = self.time.now()
        batch = Batch(
            name=name,
            spec=spec,
            provider="fake",
            folder=str(self.folder / name),
            created_at=now,
            opened_at=now,
            computer=self.computer,
        )
        points = [point(n, (odd if n == first else None) or job) for n in range(first, first + count)]
        return self.ledger.batches.submit(batch, points)

    def is_killed(self, after_s: float) -> bool:
        """A launcher drives the batch, to be killed after so many seconds; whether it came to that."""
        self.time.kill_at = self.time.now() + after_s
        try:
            self.drive()
        except Killed:
            return True
        finally:
            self.time.kill_at = math.inf
        return False

    def drive(self, name: str = NAME) -> Sequence[PointState]:
        """A launcher drives the batch as far as it goes."""
        return self._as_launcher(lambda services: BatchDriver(name, services).drive())

    def launch(self, run_id: str) -> Run:
        """A launcher begins a run that is of no batch, and drives it."""
        return self._as_launcher(lambda services: self._launched(run_id, services))

    def _launched(self, run_id: str, services: BatchServices) -> Run:
        attempts = services.attempts(SharedRequests(self.time.now, self.time), RunScreen(), lambda: 1)
        folder = str(self.folder / run_id)
        run = attempts.start(train_job(), provider="fake", run_id=run_id, out_dir=folder)
        return attempts.drive_to_end(run)

    def resume(self, run_id: str) -> Run:
        """A launcher drives that run on."""

        def resumed(services: BatchServices) -> Run:
            attempts = services.attempts(SharedRequests(self.time.now, self.time), RunScreen(), lambda: 1)
            return attempts.resume(self.ledger.get(run_id), None)

        return self._as_launcher(resumed)

    def serve(self, for_s: float) -> Sequence[str]:
        """A computer of the team drives what nobody drives, for so long; what it said."""
        self._as_launcher(lambda services: self._served(for_s, services))
        return self.screen.notes

    def _served(self, for_s: float, services: BatchServices) -> None:
        until, here = self.time.now() + for_s, self.computer

        def drive_run(run: Run, shared: SharedRequests) -> Run:
            return services.attempts(shared, RunScreen(), lambda: 1).resume(run, None)

        def drive_batch(name: str, shared: SharedRequests) -> None:
            with self.time.workers() as workers:
                batch = replace(services, requests=shared.current, sleep=shared.sleep, workers=workers)
                BatchDriver(name, batch).drive()

        ServeDriver(
            ledger=services.ledger,
            is_reachable=lambda _, computer: self.market.shared or computer == here,
            drive_run=drive_run,
            drive_batch=drive_batch,
            requests=lambda: UserRequest.DETACH if self.time.now() >= until else self.request,
            shared=SharedRequests(self.time.now, self.time),
            workers=services.workers,
            sleep=services.sleep,
            now=self.time.now,
            note=self.screen.note,
        ).serve()

    def _as_launcher(self, work: Callable[[BatchServices], _T]) -> _T:
        who = f"{self.computer or 'desk'}:{next(self._launchers)}:0"
        try:
            with self.time.workers() as workers:
                return work(self._services(who, workers))
        except BaseException:
            self.dead.add(who)
            raise

    def at(self, after_s: float, happen: Callable[[], None]) -> None:
        """It comes to pass then."""
        self.time.happens.append((self.time.now() + after_s, happen))

    def states(self, name: str = NAME) -> list[PointState]:
        """The points with their runs, as the ledger has them."""
        return states_of(self.ledger.batches.points(name), self.ledger.runs(batch=name))

    def machines(self, name: str = NAME) -> list[Run]:
        """The runs that hold machines for the batch, the oldest first."""
        runs = self.ledger.runs(batch=name)
        return sorted((run for run in runs if not run.point), key=lambda run: run.created_at)

    def _hold_of(self, label: str) -> Hold | None:
        found = [run for run in self.ledger.runs() if run.label == label]
        return read_job(found[0].spec_json).hold if found else None

    def verdicts(self, name: str = NAME) -> Counter[str]:
        """How many points ended how."""
        return Counter(str(state.verdict) for state in self.states(name))

    def _services(self, who: str, workers: RunThreads) -> BatchServices:
        ledger, market = Mortal(self.ledger, self.time), Mortal(self.market, self.time)
        computer = self.computer
        if self.plan is not None:
            market = FaultyProvider(market, "provider", self.plan)
        pool = PoolProvider(
            lambda: ledger.runs(open_only=True), lambda _: market, lambda *_: SpeedHistory(), clock=self.time
        )

        def attempts(shared: SharedRequests, screen: RunScreen, _: Callable[[], int]) -> Attempts:
            def services_for(provider: str, origin: Origin) -> Services:
                return Services(
                    provider=Mortal(pool, self.time) if provider == POOL else market,
                    ledger=ledger,
                    clock=shared,
                    packer=FakePacker(self.folder),
                    output_store=SlowPages(self.time, self.pages_s),
                    screen=FakeScreen(),
                    user_requests=shared,
                    who=who,
                    computer=computer,
                    budgets=lambda _: self.budgets,
                )

            return Attempts(services_for=services_for, new_id=self._new_id, workers=self.time.workers)

        return BatchServices(
            ledger=cast(Ledger, AwayLedger(ledger, lambda: self.time.now() < self.away_until)),
            attempts=attempts,
            requests=lambda: self.request,
            workers=workers,
            wake_signal=self.time,
            sleep=self.time.sleep,
            now=self.time.now,
            new_id=self._new_id,
            who=who,
            computer=computer,
            screen=self.screen,
            notifier=self.notifier,
            settle=lambda: self.settle(),
        )

    def _new_id(self) -> str:
        return f"run-{next(self._ids):04d}"


def point(number: int, job: JobSpec | None = None) -> BatchPoint:
    """The point of that seed."""
    job = job or train_job()
    job = replace(job, limits=replace(job.limits, usd=job.limits.usd and SHARE_USD))
    return BatchPoint(id=f"point{number:05d}", values={"train.seed": number}, spec_json=dump_job(job))
