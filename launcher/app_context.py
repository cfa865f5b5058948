"""The context of every command: paths, clocks, ids, user, and factories of adapters."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.batch.shared import ThreadWakeSignal, WakeSignal
from vastrun.launcher.commands.settings import budgets_of, read_settings, require_valid
from vastrun.launcher.core import Origin
from vastrun.launcher.core.batch import MAX_PARALLEL, Budget
from vastrun.launcher.core.settings import LoadedSettings
from vastrun.launcher.guard import GuardThread
from vastrun.launcher.ports import Clock, Ledger, OutputStore, Packer, Provider, RunThreads
from vastrun.launcher.rate_limit_waits import RateLimitWaits
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.screens import PlainScreens

if TYPE_CHECKING:
    from vastrun.launcher.commands.estimate import WorkloadEstimator
    from vastrun.launcher.commands.export import Exporter
    from vastrun.launcher.commands.rehearse import Rehearsal
    from vastrun.launcher.commands.service import UserService
    from vastrun.launcher.ledger.presence import Presence
    from vastrun.launcher.notifications.delivery import Sender
    from vastrun.launcher.ui.screen import StreamScreen

DEFAULT_PROVIDER = "local"
# Linux's monotonic clock stops while the computer sleeps, a Mac's does not; a rented machine costs meanwhile.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _thread_pool() -> AbstractContextManager[RunThreads]:
    from concurrent.futures import ThreadPoolExecutor  # when runs are driven

    # Each run may have a machine of the batch below it, whose run is driven, too.
    return ThreadPoolExecutor(max_workers=2 * MAX_PARALLEL, thread_name_prefix="run")


def _open_browser(address: str) -> bool:
    import webbrowser  # slow to import

    return webbrowser.open(address)


@dataclass(frozen=True, kw_only=True)
class AppPaths:
    """Files and folders of vastrun on this computer."""

    state: Path
    """The folder of what is kept between commands."""
    cache: Path
    """The folder of what can be fetched again."""
    image_lock: Path
    """The lock of images: vastrun's own, or one of the user's."""
    config_file: Path | None = None
    """The user's settings; None, or no such file: the defaults hold."""
    drivers: Path | None = None
    """The folder of the records and logs of background drivers; None: no driver is started."""


@dataclass(frozen=True, kw_only=True)
class AppUser:
    """The person and the computer that vastrun works for."""

    name: str = ""
    """Login name."""
    who: Callable[[], str]
    """Name of this launcher in the ledger."""
    computer: Callable[[], str] = lambda: ""
    """This computer's name within a team; empty: the ledger is this computer's own."""
    place: str = "the ledger of this computer"
    """Name of the ledger, as the user reads it."""


@dataclass(frozen=True, kw_only=True)
class Factories:
    """Factories of the adapters. Each is called when a command first needs it."""

    ledger: Callable[[], Ledger]
    provider: Callable[[str], Provider]
    shared_provider: Callable[[str], Provider] | None = None
    """Makes a provider whose recent answers many runs share; None: `provider` does."""
    packer: Callable[[Origin], Packer]
    """Makes what packs the files that a machine needs to continue from there."""
    output_store: Callable[[], OutputStore]
    notifier: Callable[[Callable[[str], None]], Sender]
    """Makes what sends notifications, with a function that reports those it cannot deliver."""
    interrupts: Callable[..., Interrupts]
    """Makes what turns signals into requests, with options of `Interrupts`."""
    rehearsal: Callable[[Path], Rehearsal]
    """Makes a rehearsal in that folder."""
    exporter: Callable[[], Exporter]
    estimator: Callable[[], WorkloadEstimator]
    service: Callable[[Path], UserService] | None = None
    """Makes the user service that serves from that folder; None: this computer has none."""
    workers: Callable[[], AbstractContextManager[RunThreads]] = _thread_pool
    """Makes the threads that drive many runs at once, until the last one has ended."""
    wake_signal: Callable[[], WakeSignal] = ThreadWakeSignal
    """Makes the signal that those threads wait for."""
    browse: Callable[[str], bool] = _open_browser
    """Opens an address in the user's browser; returns False where there is none."""


def _forget(_: bytes) -> None:
    """Do nothing with it."""


@dataclass(frozen=True, kw_only=True)
class AppContext:
    """The paths, user, clock, ids and factories that every command works with."""

    paths: AppPaths
    user: AppUser
    make: Factories
    python: str
    """The interpreter that trains on this computer."""
    now: Callable[[], float]
    new_id: Callable[[], str]
    screens: PlainScreens
    guard: GuardThread = field(default_factory=GuardThread)
    """Checks the limits of each driven run once a second."""
    presence: Presence | None = None
    """Which launchers live on this computer, and which were killed; None: unknown."""
    secrets: Callable[[], Sequence[str]] = tuple
    """Values that are written nowhere, whatever a job says."""
    printed_secrets: Callable[[], bytes] = bytes
    """Returns the secrets that commands printed here, for the memory of a driver that this process starts."""
    accept_secrets: Callable[[bytes], None] = _forget
    """Takes what `printed_secrets` returned in the process that started this one."""
    private_words: Callable[[], Mapping[str, str]] = dict
    """Names of this computer, its user and their folders, each with its replacement in a bug report."""
    rate_limit_waits: RateLimitWaits = field(default_factory=RateLimitWaits)
    """Waits of this process for the rate limits of providers."""

    def ledger(self) -> Ledger:
        """Return the ledger of runs, with all rows, to be shown. Raises StorageError."""
        return self.make.ledger()

    def driver_ledger(self) -> Ledger:
        """Return the ledger for all that drives, uploads or downloads, as `Ledger.for_drivers`."""
        return self.ledger().for_drivers()

    def provider(self, name: str) -> Provider:
        """Return the provider of that name. Raises UsageError."""
        return self.make.provider(name)

    def shared_provider(self, name: str) -> Provider:
        """Return the provider for the many runs of a batch, which share its recent answers."""
        return (self.make.shared_provider or self.make.provider)(name)

    def with_factories(self, **factories: Callable[..., object]) -> AppContext:
        """Return the same context with other factories."""
        return replace(self, make=replace(self.make, **factories))  # type: ignore[arg-type]

    def plain_screen(self) -> StreamScreen:
        """Return a screen of plain lines, whose elapsed time counts from now."""
        return self.screens.plain(self.now())

    def without_live_view(self) -> AppContext:
        """Return the same context with plain lines instead of the live view."""
        return replace(self, screens=PlainScreens(self.screens.plain))

    def settings(self) -> LoadedSettings:
        """Return the settings of the user's config file, and its faults."""
        return read_settings(self.paths.config_file)

    def budgets(self, now: float) -> Sequence[Budget]:
        """Return the user's budgets at that moment. Raises ConfigFileError."""
        budgets = budgets_of(require_valid(self.settings()).budget, now)
        return [budget for budget in budgets if isfinite(budget.usd)]

    def local_now(self) -> datetime:
        """Return the present moment in this computer's time zone."""
        return datetime.fromtimestamp(self.now(), tz=LocalZone())

    def clock(self) -> Clock:
        """Return a clock, for a command that drives no run."""
        return self.make.interrupts()


class LocalZone(tzinfo):
    """The time zone of this computer, with daylight saving time."""

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, at: datetime | None) -> str | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, at: datetime) -> datetime:
        return at.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def elapsed() -> float:
    """Return the seconds since this computer started; the same for all its processes."""
    return time.clock_gettime(_ELAPSED)


def lazy_clock(wall: Callable[[], float]) -> Callable[[], float]:
    """Return `steady_clock(wall)`, made when it is first read."""
    clock = cache(lambda: steady_clock(wall))
    return lambda: clock()()


def steady_clock(wall: Callable[[], float] = time.time) -> Callable[[], float]:
    """Return a clock of epoch seconds that reads `wall` once and then counts elapsed time."""
    offset = wall() - elapsed()
    return lambda: offset + elapsed()
