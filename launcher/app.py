"""The application: what every command works with, chosen by environment variables, which only it reads."""

from __future__ import annotations

import copy
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache, partial
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vastrun.launcher.batch.shared import ThreadWakeSignal, WakeSignal
from vastrun.launcher.commands.computer import private_words
from vastrun.launcher.commands.settings import budgets_of, read_settings, require_valid
from vastrun.launcher.core import Origin, Phase, Run
from vastrun.launcher.core.batch import MAX_PARALLEL, Budget
from vastrun.launcher.core.labels import new_id
from vastrun.launcher.core.secrets import secrets_among
from vastrun.launcher.core.settings import LoadedSettings
from vastrun.launcher.guard import GuardThread, InterruptibleClock
from vastrun.launcher.ledger.presence import Presence
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ledger.team_connection import TeamConnection, computer_name
from vastrun.launcher.package_files import configs_dir
from vastrun.launcher.ports import Ledger, OutputStore, Packer, Provider, RunThreads
from vastrun.launcher.rate_limit_waits import RateLimitWaits
from vastrun.launcher.ui.interrupts import Interrupts
from vastrun.launcher.ui.question import HeldStream
from vastrun.launcher.ui.screens import LiveScreens, PlainScreens, interrupts_on

if TYPE_CHECKING:
    from vastrun.launcher.bundle.archive import CodeStore
    from vastrun.launcher.bundle.local_data import LocalData
    from vastrun.launcher.bundle.secret_command import CommandSecrets
    from vastrun.launcher.bundle.shared_jobs import SharedJobs
    from vastrun.launcher.commands.estimate import WorkloadEstimator
    from vastrun.launcher.commands.export import Exporter
    from vastrun.launcher.commands.rehearse import Rehearsal
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.history import SpeedHistory
    from vastrun.launcher.image.lock import Lock
    from vastrun.launcher.notifications import Sender
    from vastrun.launcher.ui.screen import StreamScreen

DEFAULT_PROVIDER = "local"
# Linux's monotonic clock stops while the computer sleeps, a Mac's does not; a rented machine costs meanwhile.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class App:
    """The paths, user, clock and adapters of this computer. Slow ones are imported when first used."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Choose the adapters by environment variables. Touches no file."""
        self._environ = environ
        url = environ.get("VASTRUN_LEDGER", "")
        self._team = TeamConnection(url, environ.get("VASTRUN_TEAM_KEY", "")) if url else None
        """Ledger that this computer shares with others; None if it has its own."""
        self.state = self._folder("XDG_STATE_HOME", ".local/state")
        """The folder of what is kept between commands."""
        self.cache = self._folder("XDG_CACHE_HOME", ".cache")
        """The folder of what can be fetched again."""
        self.config_file = self._folder("XDG_CONFIG_HOME", ".config") / "config.yaml"
        """The user's settings; if there is no such file, the defaults hold."""
        self.image_lock = Path(environ.get("VASTRUN_IMAGE_LOCK") or configs_dir() / "image.lock")
        """The lock of images: vastrun's own, or one of the user's."""
        self.drivers: Path | None = self.state / "drivers"
        """The folder of the records and logs of background drivers; None: no driver is started."""
        self.python = environ.get("VASTRUN_PYTHON", sys.executable)
        """The interpreter that trains on this computer."""
        self.user = environ.get("LOGNAME") or environ.get("USER") or ""
        """Login name."""
        self.place = "the team's ledger" if self._team else "the ledger of this computer"
        """Name of the ledger, as the user reads it."""
        self.guard = GuardThread()
        """Checks the limits of each driven run once a second."""
        self.rate_limit_waits = RateLimitWaits()
        """Waits of this process for the rate limits of providers."""
        if self._team is None:
            self.now, self.presence = steady_clock(), Presence(self.state / "launchers")
        else:
            # The database's clock, so that computers with different clocks agree on times and limits.
            clock = cache(partial(steady_clock, self._team.time))  # made when it is first read
            self.now = lambda: clock()()
            self.presence = Presence(self.state / "launchers", partial(computer_name, self.state))
        output = HeldStream(lambda: sys.stderr)
        self.screens: PlainScreens = LiveScreens(output, environ, self.now)
        self.interrupts: Callable[..., Interrupts] = partial(interrupts_on, output, environ, self.now)
        """Makes what turns signals into requests, with options of `Interrupts`."""
        self.provider_clock = InterruptibleClock(self.now)
        """The clock of providers, whose waits end with a request of the user of a driven run."""
        self.wake_signal: Callable[[], WakeSignal] = ThreadWakeSignal
        """Makes the signal that the threads of many runs wait for."""
        self.ledger = cache(self._ledger)
        """Returns the ledger of runs, with all rows, to be shown. Raises StorageError."""
        self.provider = cache(self._provider)
        """Returns the provider of that name. Raises UsageError."""
        self.shared_provider = cache(partial(self._provider, many_runs=True))
        """Returns the provider for the many runs of a batch, which share its recent answers."""
        self.commands = cache(self._command_secrets)
        """Returns the secrets that commands print, each run once."""
        self._shared_jobs = cache(self._kept)

    def with_changes(self, **changes: Any) -> App:
        """Return the same application with other attributes."""
        app = copy.copy(self)
        for name, value in changes.items():
            setattr(app, name, value)
        return app

    def _folder(self, variable: str, usual: str) -> Path:
        base = self._environ.get(variable, "")
        # The XDG specification says that relative paths must be ignored.
        root = Path(base) if base.startswith("/") else Path.home() / usual
        return root / "vastrun"

    def who(self) -> str:
        """Return the name of this launcher in the ledger."""
        return self.presence.who

    def computer(self) -> str:
        """Return this computer's name within a team; empty: the ledger is this computer's own."""
        return self.presence.computer if self._team else ""

    def new_id(self) -> str:
        """Return the id of a new run."""
        return new_id(random.SystemRandom())

    def secrets(self) -> Sequence[str]:
        """Return values that are written nowhere, whatever a job says."""
        return secrets_among(self._environ)

    def private_words(self) -> Mapping[str, str]:
        """Return names of this computer, its user and their folders, each with its form in a bug report."""
        return private_words(self.state)

    def driver_ledger(self) -> Ledger:
        """Return the ledger for all that drives, uploads or downloads, as `Ledger.for_drivers`."""
        return self.ledger().for_drivers()

    def plain_screen(self) -> StreamScreen:
        """Return a screen of plain lines, whose elapsed time counts from now."""
        return self.screens.plain(began=self.now())

    def settings(self) -> LoadedSettings:
        """Return the settings of the user's config file, and its faults."""
        return read_settings(self.config_file)

    def budgets(self, now: float) -> Sequence[Budget]:
        """Return the user's budgets at that moment. Raises ConfigFileError."""
        budgets = budgets_of(require_valid(self.settings()).budget, now)
        return [budget for budget in budgets if isfinite(budget.usd)]

    def local_now(self) -> datetime:
        """Return the present moment in this computer's time zone."""
        return datetime.fromtimestamp(self.now(), tz=LocalZone())

    def _ledger(self) -> Ledger:
        presence = self.presence
        if self._team is None:
            return SqliteLedger(self.state / "ledger.db", now=self.now, alive=presence.is_alive)
        return self._team.open(
            now=self.now,
            alive_here=presence.is_alive_here,
            computer=lambda: presence.computer,
            state=self.state,
        )

    def _kept(self) -> SharedJobs | None:
        if self._team is None:
            return None
        from vastrun.launcher.bundle.shared_jobs import SharedJobs

        return SharedJobs(self._team.secrets(self.ledger().id), self.presence.computer)

    def _command_secrets(self) -> CommandSecrets:
        from vastrun.launcher.bundle.secret_command import CommandSecrets

        return CommandSecrets(self._environ)

    def _provider(self, name: str, *, many_runs: bool = False) -> Provider:
        from vastrun.launcher.providers import ProviderContext, provider_class

        team = self._team
        context = ProviderContext(
            environ=self._environ,
            state=self.state,
            clock=self.provider_clock,
            uptime=elapsed,
            python=self.python,
            image_lock=self._lock,
            speeds=self._speeds,
            runs=lambda: self.driver_ledger().runs(open_only=True, members=True),
            provider=self.shared_provider if many_runs else self.provider,
            settings=self.settings,
            rate_limits=None if team is None else team.rate_limits,
            secrets=None if team is None else team.secrets(self.ledger().id),
            many_runs=many_runs,
            report_wait=self.rate_limit_waits.report,
        )
        return provider_class(name).of(context)

    def _lock(self) -> Lock:
        from vastrun.launcher.image.lock import read_lock

        return read_lock(self.image_lock)

    def _speeds(self, provider: str, spec: JobSpec) -> SpeedHistory:
        """Return the known speeds of the job: measured ones, and estimates where `plan` made them before."""
        from vastrun.launcher.decisions.history import HOST_CAUSES, avoided, speed_history_of
        from vastrun.launcher.decisions.workload import efficiency_of

        runs, estimator = self.ledger().measured(), self.estimator()
        history = replace(
            speed_history_of(runs, provider, spec),
            up_mbps=self.local_data().mbps,
            avoid=avoided(self.ledger().runs(causes=HOST_CAUSES, members=True), provider, self.now()),
        )
        workloads = estimator.known(spec)
        if workloads is None or history.speeds:
            return replace(history, workloads=workloads)
        return replace(history, workloads=workloads, efficiency=efficiency_of(runs, estimator.known))

    def _inherited(self) -> dict[str, str]:
        from vastrun.launcher.providers import inherited_environment

        return inherited_environment(self._environ)

    def estimator(self) -> WorkloadEstimator:
        """Return what estimates the memory and the speed of a step."""
        from vastrun.launcher.commands.estimate import WorkloadEstimator

        cache = self.cache / "workloads"
        return WorkloadEstimator(python=self.python, environment=self._inherited(), cache=cache)

    def packer(self, origin: Origin) -> Packer:
        """Return what packs the files that a machine needs to continue from there."""
        from vastrun.launcher.bundle import Bundler

        def values_of(batch: str, point: str) -> Mapping[str, Any]:
            return self.driver_ledger().batches.values_of(batch, point)

        return Bundler(
            self._environ,
            origin=origin,
            values_of=values_of,
            codes=self.codes(),
            data=self.local_data(),
            shared_jobs=self._shared_jobs(),
            commands=self.commands(),
        )

    def local_data(self) -> LocalData:
        """Return what reads the files of this computer that jobs name as data."""
        from vastrun.launcher.bundle.local_data import LocalData

        return LocalData(self.state / "data")

    def codes(self) -> CodeStore:
        """Return what keeps the code of jobs as it was submitted."""
        from vastrun.launcher.bundle.archive import CodeStore

        def needed() -> set[str]:
            """Digests of what open runs, batches, and ended runs with outputs may be shipped with again."""
            ledger = self.ledger()
            specs = [
                r.spec_json for r in ledger.runs() if r.phase is not Phase.ENDED or Path(r.out_dir).is_dir()
            ]
            for batch in ledger.batches.all():
                specs += [point.spec_json for point in ledger.batches.points(batch.name)]
            return {str(json.loads(spec).get("code_digest")) for spec in specs}

        return CodeStore(self.state / "code", needed)

    def output_store(self) -> OutputStore:
        """Return what downloads outputs."""
        from vastrun.launcher.config import read_job
        from vastrun.launcher.outputs.store import FolderStore
        from vastrun.launcher.ui.render.index import index_of

        def report(run: Run, now: float) -> str:
            from vastrun.launcher.ui.report.run_page import page_of  # when a run has ended

            return page_of(self.ledger(), run, now)

        def index(run: Run, now: float) -> Mapping[str, str | bytes]:
            codes, digest = self.codes(), read_job(run.spec_json).code_digest
            patch = b"" if digest is None else codes.patch(digest)
            return index_of(run, now, self.ledger().runs(leader=run.id), codes.record(digest), patch)

        return FolderStore(index=index, report=report)

    def notifier(self, say: Callable[[str], None]) -> Sender:
        """Return what sends notifications; `say` reports those that it cannot deliver."""
        from vastrun.launcher.notifications import Sender
        from vastrun.launcher.ui.render.notifications import notification_document

        return Sender(self._environ, say, notification_document)

    def rehearsal(self, folder: Path) -> Rehearsal:
        """Return a rehearsal in that folder."""
        from vastrun.launcher.commands.rehearse import Rehearsal

        gpus = {name: self._environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in self._environ}
        return Rehearsal(folder, self.python, {**self._inherited(), **gpus})

    def exporter(self) -> Exporter:
        """Return what exports models."""
        from vastrun.launcher.commands.export import Exporter

        return Exporter(python=self.python, environment=self._inherited())

    def workers(self) -> AbstractContextManager[RunThreads]:
        """Return the threads that drive many runs at once, until the last one has ended."""
        from concurrent.futures import ThreadPoolExecutor  # when runs are driven

        # Each run may have a machine of the batch below it, whose run is driven, too.
        return ThreadPoolExecutor(max_workers=2 * MAX_PARALLEL, thread_name_prefix="run")

    def browse(self, address: str) -> bool:
        """Open an address in the user's browser; return False where there is none."""
        import webbrowser  # slow to import

        return webbrowser.open(address)


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


def steady_clock(wall: Callable[[], float] = time.time) -> Callable[[], float]:
    """Return a clock of epoch seconds that reads `wall` once and then counts elapsed time."""
    offset = wall() - elapsed()
    return lambda: offset + elapsed()
