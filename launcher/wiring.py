"""Wiring: the one place that reads the environment and picks adapters."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.batch.sharing import Bell, ThreadBell
from launcher.clocks import LocalZone, elapsed, late_clock, steady_clock
from launcher.commands.attempts import Attempts
from launcher.commands.computer import private_words
from launcher.commands.settings import budgets_of, read_settings, sound
from launcher.core import NOTHING, Origin, Run, UserRequest
from launcher.core.batch import MOST_PARALLEL, Budget
from launcher.core.job import JobSpec
from launcher.core.settings import LoadedSettings
from launcher.decisions.speed_history import SpeedHistory, speed_history_of
from launcher.decisions.workload import efficiency_of
from launcher.flow.context import Services
from launcher.ledger.joining import TeamLedger, name_of_computer
from launcher.ledger.presence import Presence
from launcher.ledger.run_ids import new_id
from launcher.ledger.sqlite import SqliteLedger
from launcher.ports import (
    Clock,
    Ledger,
    Notifier,
    OutputStore,
    Packer,
    Provider,
    RunThreads,
    Screen,
)
from launcher.shipped import configs_dir
from launcher.transcript.plain import secrets_among
from launcher.ui.interrupts import Interrupts
from launcher.ui.list_screen import Listed
from launcher.ui.question import HeldStream
from launcher.ui.screen import StreamScreen
from launcher.ui.screens import (
    interrupts_on,
    list_screen_on,
    plain_replay_screen,
    plain_screen_on,
    replay_screen_on,
    screen_on,
)

if TYPE_CHECKING:
    from launcher.batch.services import BatchScreen
    from launcher.batch.sharing import RunScreen, SharedRequests
    from launcher.bundle.kept import KeptJobs
    from launcher.commands.exporting import Exporter
    from launcher.commands.foretelling import Foreteller
    from launcher.commands.rehearsing import Rehearsal
    from launcher.decisions.schedule import PointState
    from launcher.ui.notify import UrlNotifier

DEFAULT_PROVIDER = "local"


def _threads() -> AbstractContextManager[RunThreads]:
    # Each run may have a machine of the batch below it, whose run is driven, too.
    return ThreadPoolExecutor(max_workers=2 * MOST_PARALLEL, thread_name_prefix="run")


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
    screen: Callable[[float], StreamScreen]
    """Counts elapsed time from that moment."""
    plain_screen: Callable[[float], StreamScreen] | None = None
    """As `screen`, of plain lines at a terminal, too; None: `screen` is so."""
    notifier: Callable[[Callable[[str], None]], UrlNotifier]
    """Says what it cannot deliver."""
    interrupts: Callable[[UserRequest, UserRequest, float | None, bool], Interrupts]
    """Of what the first Ctrl-C means (NONE: ask), the request from the start, and until when to stay."""
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
    foreteller: Callable[[], Foreteller]
    workers: Callable[[], AbstractContextManager[RunThreads]] = _threads
    """What drives many runs at once, until the last one has ended."""
    bell: Callable[[], Bell] = ThreadBell
    """What those wait by."""
    config_file: Path | None = None
    """The user's settings; None, or none there: they have none."""
    browse: Callable[[str], bool] = _browse
    """Shows the page at an address to the user; False: it cannot."""

    secrets: Callable[[], Sequence[str]] = tuple
    """Values that are written nowhere, whatever a job says of them."""
    private_words: Callable[[], Mapping[str, str]] = dict
    """Names of this computer, its user and their folders, each with what a bug report says instead."""
    replay_screen: Callable[[float, Callable[[], float]], StreamScreen] = plain_replay_screen
    """What shows a transcript again: elapsed time counts from that moment, by that clock."""

    list_screen: Callable[[float, Listed], StreamScreen] | None = None
    """As `screen`, of many runs, with a list of those that go on; None: plain lines."""

    def screen_of_many(self, listed: Listed) -> StreamScreen:
        """Return what shows a batch."""
        if self.list_screen is None:
            return self.plainly().screen(self.now())
        return self.list_screen(self.now(), listed)

    def plainly(self) -> Wiring:
        """Return the same wiring without the live view."""
        if self.plain_screen is None:
            return self
        return replace(self, screen=self.plain_screen, list_screen=None, replay_screen=plain_replay_screen)

    def settings(self) -> LoadedSettings:
        """Return what the user's config file says now, and its faults."""
        return read_settings(self.config_file)

    def budgets(self, now: float) -> Sequence[Budget]:
        """Return the user's budgets at that moment. Raises ConfigFileError."""
        budgets = budgets_of(sound(self.settings()).budget, now)
        return [budget for budget in budgets if isfinite(budget.usd)]

    crowd: Callable[[str], Provider] | None = None
    """As `provider`, for many runs at once: they share what it was asked lately. None: it needs no other."""

    def market_of_many(self, name: str) -> Provider:
        """Return the provider, for the many runs of a batch: they share what it was asked lately."""
        return (self.crowd or self.provider)(name)

    def local_now(self) -> datetime:
        """Return the present moment in this computer's zone."""
        return datetime.fromtimestamp(self.now(), tz=LocalZone())

    def clock(self) -> Clock:
        """Return a clock, for a command that drives nothing."""
        return self.interrupts(UserRequest.STOP, UserRequest.NONE, None, False)

    def services_for(self, provider: str, began: float) -> Services:
        """Make what reaches machines, for a command that drives nothing."""
        interrupts = self.interrupts(UserRequest.STOP, UserRequest.NONE, None, False)
        return self.services(provider, interrupts, self.screen(began))

    @contextmanager
    def attempts(self, interrupts: Interrupts, *, began: float) -> Iterator[Attempts]:
        """Yield what drives runs for a user who may interrupt."""
        screen = self.screen(began)
        notifier = self.notifier(screen.note)

        def services_for(provider: str, origin: Origin) -> Services:
            return self.services(provider, interrupts, screen, origin, notifier)

        try:
            recorded = partial(self._recorded, began)
            yield Attempts(services_for=services_for, new_id=self.new_id, recorded=recorded)
        finally:
            notifier.close()
            screen.close()

    def drive_batch(
        self, name: str, interrupts: Interrupts | SharedRequests, screen: BatchScreen, *, prunes: bool = True
    ) -> Sequence[PointState]:
        """Drive a batch for a user who may interrupt. Raises as `BatchDriver.drive`."""
        from launcher.batch.driver import BatchDriver
        from launcher.batch.services import BatchServices

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
            from launcher.ui.report.batch_file import leave_report  # when a batch has ended

            if told := leave_report(self.ledger(), name, self.now()):
                screen.note(told)
            return states

    def attempts_of_many(
        self, shared: SharedRequests, screen: RunScreen, runs_at_once: Callable[[], int]
    ) -> Attempts:
        """Return what drives one run among many."""

        def services_for(provider: str, origin: Origin) -> Services:
            return Services(
                provider=self.market_of_many(provider),
                ledger=self.ledger(),
                clock=shared,
                packer=self.packer(origin),
                output_store=self.output_store(),
                screen=screen,
                user_requests=shared,
                who=self.who(),
                user=self.user,
                computer=self.computer(),
                budgets=self.budgets,
                runs_at_once=runs_at_once,
            )

        return Attempts(services_for=services_for, new_id=self.new_id, recorded=partial(self._recorded, None))

    def _recorded(
        self, shown_since: float | None, run: Run, services: Services
    ) -> AbstractContextManager[Services]:
        """The services that drive the run, with its transcript."""
        from launcher.transcript.recorded import recorded

        return recorded(run, services, self.secrets(), shown_since=shown_since)

    def services(
        self,
        provider: str,
        interrupts: Interrupts,
        screen: Screen,
        origin: Origin = NOTHING,
        notifier: Notifier | None = None,
    ) -> Services:
        """Make what drives one run."""
        return Services(
            provider=self.provider(provider),
            ledger=self.ledger(),
            clock=interrupts,
            packer=self.packer(origin),
            output_store=self.output_store(),
            screen=screen,
            user_requests=interrupts,
            who=self.who(),
            user=self.user,
            computer=self.computer(),
            notifier=notifier,
            budgets=self.budgets,
        )


def wire(environ: Mapping[str, str]) -> Wiring:
    """Choose the real adapters, as the environment asks for them."""
    state = _folder(environ, "XDG_STATE_HOME", ".local/state")
    team, now = _team(environ), _now()
    presence = Presence(state / "launchers")
    output = HeldStream(lambda: sys.stderr)
    if team is not None:
        # Computers whose clocks differ agree on when a run began, and on how long it may go on.
        presence = Presence(state / "launchers", partial(name_of_computer, state))
        now = late_clock(team.time)

    @cache
    def ledger() -> Ledger:
        if team is not None:
            return team.open(now=now, alive_here=presence.is_alive_here)
        return SqliteLedger(state / "ledger.db", now=now, alive=presence.is_alive)

    @cache
    def kept() -> KeptJobs | None:
        if team is None:
            return None
        from launcher.bundle.kept import KeptJobs

        return KeptJobs(team.secrets(ledger().id), presence.computer)

    @cache
    def provider(name: str) -> Provider:
        return _provider(environ, state, output, now, team, ledger, provider, name)

    @cache
    def crowd(name: str) -> Provider:
        return _provider(environ, state, output, now, team, ledger, crowd, name, crowd=True)

    return Wiring(
        state=state,
        cache=_folder(environ, "XDG_CACHE_HOME", ".cache"),
        image_lock=_image_lock(environ),
        python=_python(environ),
        ledger=ledger,
        provider=provider,
        packer=partial(_packer, environ, ledger, kept),
        output_store=partial(_output_store, ledger),
        screen=lambda began: screen_on(output, environ, began=began, now=now),
        list_screen=lambda began, listed: list_screen_on(output, environ, listed, began=began, now=now),
        plain_screen=lambda began: plain_screen_on(output, environ, began=began, now=now),
        notifier=partial(_notifier, environ),
        interrupts=partial(interrupts_on, output, environ, now),
        now=now,
        new_id=lambda: new_id(random.SystemRandom()),
        who=lambda: presence.who,
        user=_user(environ),
        place="the team's ledger" if team else "the ledger of this computer",
        computer=lambda: presence.computer if team else "",
        rehearsal=partial(_rehearsal, environ),
        exporter=partial(_exporter, environ),
        foreteller=partial(_foreteller, environ),
        crowd=crowd,
        secrets=lambda: secrets_among(environ),
        private_words=lambda: private_words(state),
        replay_screen=lambda began, now: replay_screen_on(environ, began=began, now=now),
        config_file=_config_file(environ),
    )


def _team(environ: Mapping[str, str]) -> TeamLedger | None:
    """The ledger that this computer shares with others; None: it has its own. Raises UsageError."""
    url = environ.get("VASTRUN_LEDGER", "")
    return TeamLedger(url, environ.get("VASTRUN_TEAM_KEY", "")) if url else None


def _user(environ: Mapping[str, str]) -> str:
    return environ.get("LOGNAME") or environ.get("USER") or ""


def _provider(
    environ: Mapping[str, str],
    state: Path,
    output: HeldStream,
    now: Callable[[], float],
    team: TeamLedger | None,
    ledger: Callable[[], Ledger],
    provider: Callable[[str], Provider],
    name: str,
    *,
    crowd: bool = False,
) -> Provider:
    """The provider of that name. Raises UsageError when there is none."""
    from launcher.image.lock import read_lock
    from launcher.providers import ProviderContext, provider_class

    context = ProviderContext(
        environ=environ,
        state=state,
        clock=interrupts_on(output, environ, now, UserRequest.STOP, UserRequest.NONE, None, False),
        uptime=elapsed,
        python=_python(environ),
        image_lock=lambda: read_lock(_image_lock(environ)),
        speeds=partial(_speeds, environ, ledger),
        runs=lambda: ledger().runs(open_only=True),
        provider=provider,
        book=None if team is None else team.book,
        secrets=None if team is None else team.secrets(ledger().id),
        settings=lambda: read_settings(_config_file(environ)),
        crowd=crowd,
    )
    return provider_class(name).of(context)


def _speeds(
    environ: Mapping[str, str], ledger: Callable[[], Ledger], provider: str, spec: JobSpec
) -> SpeedHistory:
    """What is known of the job's speed: measured, and foretold where `plan` did so before."""
    runs, foreteller = ledger().runs(), _foreteller(environ)
    history = speed_history_of(runs, provider, spec)
    workloads = foreteller.known(spec)
    if workloads is None or history.speeds:
        return replace(history, workloads=workloads)
    return replace(history, workloads=workloads, efficiency=efficiency_of(runs, foreteller.known))


def _foreteller(environ: Mapping[str, str]) -> Foreteller:
    from launcher.commands.foretelling import Foreteller
    from launcher.providers.local import inherited

    cache = _folder(environ, "XDG_CACHE_HOME", ".cache") / "workloads"
    return Foreteller(python=_python(environ), environment=inherited(environ), cache=cache)


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    base = environ.get(variable, "")
    # A relative path is to be ignored, says the XDG specification.
    root = Path(base) if base.startswith("/") else Path.home() / usual
    return root / "vastrun"


def _config_file(environ: Mapping[str, str]) -> Path:
    return _folder(environ, "XDG_CONFIG_HOME", ".config") / "config.yaml"


def _image_lock(environ: Mapping[str, str]) -> Path:
    chosen = environ.get("VASTRUN_IMAGE_LOCK", "")
    return Path(chosen) if chosen else configs_dir() / "image.lock"


def _packer(
    environ: Mapping[str, str],
    ledger: Callable[[], Ledger],
    kept: Callable[[], KeptJobs | None],
    origin: Origin,
) -> Packer:
    from launcher.bundle import Bundler

    def values_of(batch: str, point: str) -> Mapping[str, Any]:
        return ledger().batches.values_of(batch, point)

    return Bundler(environ, origin=origin, values_of=values_of, kept=kept())


def _output_store(ledger: Callable[[], Ledger]) -> OutputStore:
    from launcher.outputs.index import Contents
    from launcher.outputs.store import FolderStore
    from launcher.ui.render.index import index_of

    def report(run: Run, now: float) -> str:
        from launcher.ui.report.run_page import page_of  # when a run has ended

        return page_of(ledger(), run, now)

    def index(run: Run, contents: Contents, now: float) -> Mapping[str, str]:
        return index_of(run, contents, now, ledger().runs(leader=run.id))

    return FolderStore(index=index, report=report)


def _notifier(environ: Mapping[str, str], say: Callable[[str], None]) -> UrlNotifier:
    from launcher.ui.notify import UrlNotifier  # slow to import: HTTP

    return UrlNotifier(environ, say)


def _rehearsal(environ: Mapping[str, str], folder: Path) -> Rehearsal:
    from launcher.commands.rehearsing import Rehearsal
    from launcher.providers.local import inherited

    gpus = {name: environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in environ}
    return Rehearsal(folder, _python(environ), {**inherited(environ), **gpus})


def _exporter(environ: Mapping[str, str]) -> Exporter:
    from launcher.commands.exporting import Exporter
    from launcher.providers.local import inherited

    return Exporter(python=_python(environ), environment=inherited(environ))


def _python(environ: Mapping[str, str]) -> str:
    return environ.get("VASTRUN_PYTHON", sys.executable)


@cache
def _now() -> Callable[[], float]:
    """The one clock of this process."""
    return steady_clock()
