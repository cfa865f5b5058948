"""What the commands work with, whatever adapters are behind it; `environment.py` picks them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.batch.shared import Bell, ThreadBell
from vastrun.launcher.clocks import LocalZone
from vastrun.launcher.commands.settings import budgets_of, read_settings, require_valid
from vastrun.launcher.core import NOTHING, Origin, Run, UserRequest
from vastrun.launcher.core.batch import MAX_PARALLEL, Budget
from vastrun.launcher.core.settings import LoadedSettings
from vastrun.launcher.flow.services import Services
from vastrun.launcher.guard import GuardThread
from vastrun.launcher.ports import (
    Clock,
    Ledger,
    Notifier,
    OutputStore,
    Packer,
    Provider,
    RunThreads,
    Screen,
)
from vastrun.launcher.ui.interrupts import Interrupts, MakeInterrupts
from vastrun.launcher.ui.screens import PlainScreens

if TYPE_CHECKING:
    from vastrun.launcher.batch.services import BatchScreen
    from vastrun.launcher.batch.shared import RunScreen, SharedRequests
    from vastrun.launcher.commands.attempts import Attempts
    from vastrun.launcher.commands.estimate import WorkloadEstimator
    from vastrun.launcher.commands.export import Exporter
    from vastrun.launcher.commands.rehearse import Rehearsal
    from vastrun.launcher.commands.service import UserService
    from vastrun.launcher.decisions.schedule import PointState
    from vastrun.launcher.ledger.presence import Presence
    from vastrun.launcher.ui.notify import UrlNotifier
    from vastrun.launcher.ui.screen import StreamScreen

DEFAULT_PROVIDER = "local"


def _threads() -> AbstractContextManager[RunThreads]:
    from concurrent.futures import ThreadPoolExecutor  # when runs are driven

    # Each run may have a machine of the batch below it, whose run is driven, too.
    return ThreadPoolExecutor(max_workers=2 * MAX_PARALLEL, thread_name_prefix="run")


def _browse(address: str) -> bool:
    """Show a page in the user's browser; False where there is none."""
    import webbrowser

    return webbrowser.open(address)


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """What the commands work with. Each part is made when it is first asked for."""

    state: Path
    """The folder of everything that is kept between commands."""
    cache: Path
    """The folder of what can be fetched again."""
    image_lock: Path
    """The lock of images: the one that comes with vastrun, or one of the user's."""
    python: str
    """What trains on this computer."""
    ledger: Callable[[], Ledger]
    provider: Callable[[str], Provider]
    packer: Callable[[Origin], Packer]
    """Packs what a box needs to continue from there."""
    output_store: Callable[[], OutputStore]
    screens: PlainScreens
    notifier: Callable[[Callable[[str], None]], UrlNotifier]
    """Says what it cannot deliver."""
    interrupts: MakeInterrupts
    now: Callable[[], float]
    new_id: Callable[[], str]
    who: Callable[[], str]
    user: str = ""
    """The login name of whoever runs this."""
    place: str = "the ledger of this computer"
    """Names the ledger to the user."""
    computer: Callable[[], str] = lambda: ""
    """This computer's name within a team; empty: the ledger is this computer's own."""
    rehearsal: Callable[[Path], Rehearsal]
    """In that folder."""
    exporter: Callable[[], Exporter]
    estimator: Callable[[], WorkloadEstimator]
    workers: Callable[[], AbstractContextManager[RunThreads]] = _threads
    """What drives many runs at once, until the last one has ended."""
    guard: GuardThread = field(default_factory=GuardThread)
    """Looks at the limits of each run that is driven, each second."""
    bell: Callable[[], Bell] = ThreadBell
    """What those wait by."""
    config_file: Path | None = None
    """The user's settings; None, or none there: they have none."""
    service: Callable[[Path], UserService] | None = None
    """Makes the user service that serves from that folder."""
    drivers: Path | None = None
    """The folder of the records and logs of background drivers; None: none are started."""
    presence: Presence | None = None
    """Which launchers live on this computer, and which were killed; None: that is not known."""
    browse: Callable[[str], bool] = _browse
    """Shows the page at an address to the user; False: it cannot."""

    secrets: Callable[[], Sequence[str]] = tuple
    """Values that are written nowhere, whatever a job says of them."""
    private_words: Callable[[], Mapping[str, str]] = dict
    """Names of this computer, its user and their folders, each with what a bug report says instead."""
    crowd: Callable[[str], Provider] | None = None
    """As `provider`, for many runs at once: they share what it was asked lately. None: it needs no other."""

    def plain_screen(self) -> StreamScreen:
        """Return a screen of plain lines, whose elapsed time counts from now."""
        return self.screens.plain(self.now())

    def plainly(self) -> Wiring:
        """Return the same wiring without the live view."""
        return replace(self, screens=PlainScreens(self.screens.plain))

    def settings(self) -> LoadedSettings:
        """Return what the user's config file says now, and its faults."""
        return read_settings(self.config_file)

    def budgets(self, now: float) -> Sequence[Budget]:
        """Return the user's budgets at that moment. Raises ConfigFileError."""
        budgets = budgets_of(require_valid(self.settings()).budget, now)
        return [budget for budget in budgets if isfinite(budget.usd)]

    def market_of_many(self, name: str) -> Provider:
        """Return the provider, for the many runs of a batch: they share what it was asked lately."""
        return (self.crowd or self.provider)(name)

    def local_now(self) -> datetime:
        """Return the present moment in this computer's zone."""
        return datetime.fromtimestamp(self.now(), tz=LocalZone())

    def clock(self) -> Clock:
        """Return a clock, for a command that drives nothing."""
        return self.interrupts()

    def services_for(self, provider: str, began: float) -> Services:
        """Make what reaches machines, for a command that drives nothing."""
        return self.services(provider, self.interrupts(), self.screens.of_run(began))

    @contextmanager
    def attempts(self, interrupts: Interrupts, *, began: float) -> Iterator[Attempts]:
        """Yield what drives runs for a user who may interrupt."""
        screen = self.screens.of_run(began)
        notifier = self.notifier(screen.note)

        def services_for(provider: str, origin: Origin) -> Services:
            return self.services(provider, interrupts, screen, origin, notifier)

        try:
            yield self._attempts(services_for, shown_since=began)
        finally:
            notifier.close()
            screen.close()

    def drive_batch(
        self, name: str, interrupts: Interrupts | SharedRequests, screen: BatchScreen, *, prunes: bool = True
    ) -> Sequence[PointState]:
        """Drive a batch for a user who may interrupt. Raises as `BatchDriver.drive`."""
        from vastrun.launcher.batch.driver import BatchDriver
        from vastrun.launcher.batch.services import BatchServices

        def attempts(shared: SharedRequests, run_screen: RunScreen) -> Attempts:
            return self.attempts_of_many(shared, run_screen, driver.runs_at_once)

        with closing(self.notifier(screen.note)) as notifier, self.workers() as workers:
            driver = BatchDriver(
                name,
                BatchServices(
                    ledger=self.ledger(),
                    attempts=attempts,
                    requests=interrupts.current,
                    workers=workers,
                    bell=self.bell(),
                    sleep=interrupts.sleep,
                    now=self.now,
                    new_id=self.new_id,
                    who=self.who(),
                    computer=self.computer(),
                    screen=screen,
                    prunes=prunes,
                    notifier=notifier,
                ),
            )
            states = driver.drive()
            if interrupts.current() is UserRequest.NONE:
                self.settle(self.ledger().batches.get(name).provider)
            from vastrun.launcher.ui.report.batch_page import leave_report  # when a batch has ended

            if told := leave_report(self.ledger(), name, self.now()):
                screen.note(told)
            return states

    def settle(self, provider: str) -> None:
        """Have earlier runs cost what that provider charged for them, where their bill is due by now."""
        from vastrun.launcher.commands.settle import settle_due  # at the end of a command

        settle_due(self.ledger(), provider, self.provider(provider), self.who(), self.now())

    def attempts_of_many(
        self,
        shared: SharedRequests,
        screen: RunScreen,
        runs_at_once: Callable[[], int],
        notifier: Notifier | None = None,
    ) -> Attempts:
        """Return what drives one run among many. `notifier`: of a run that is of no batch."""

        def services_for(provider: str, origin: Origin) -> Services:
            market = self.market_of_many(provider)
            made = self._services(market, shared, screen, origin, notifier)
            return replace(made, active_runs=runs_at_once)

        return self._attempts(services_for, shown_since=None)

    def _attempts(
        self, services_for: Callable[[str, Origin], Services], *, shown_since: float | None
    ) -> Attempts:
        from vastrun.launcher.commands.attempts import Attempts  # when a run is driven

        recorded = partial(self._recorded, shown_since)
        return Attempts(services_for=services_for, new_id=self.new_id, recorded=recorded)

    def _recorded(
        self, shown_since: float | None, run: Run, services: Services
    ) -> AbstractContextManager[Services]:
        """The services that drive the run, with its transcript."""
        from vastrun.launcher.transcript.recorded import recorded

        gap_s = partial(getattr, self.guard, "longest_gap_s")
        return recorded(run, services, self.secrets(), shown_since=shown_since, guard_gap_s=gap_s)

    def services(
        self,
        provider: str,
        interrupts: Interrupts,
        screen: Screen,
        origin: Origin = NOTHING,
        notifier: Notifier | None = None,
    ) -> Services:
        """Make what drives one run."""
        made = self._services(self.provider(provider), interrupts, screen, origin, notifier)
        return replace(made, ask_to_keep=interrupts.ask_to_keep)

    def _services(
        self,
        provider: Provider,
        requests: Interrupts | SharedRequests,
        screen: Screen,
        origin: Origin,
        notifier: Notifier | None,
    ) -> Services:
        return Services(
            provider=provider,
            ledger=self.ledger(),
            clock=requests,
            packer=self.packer(origin),
            output_store=self.output_store(),
            screen=screen,
            user_requests=requests,
            who=self.who(),
            user=self.user,
            computer=self.computer(),
            notifier=notifier,
            budgets=self.budgets,
            guard=self.guard.guarding,
        )
