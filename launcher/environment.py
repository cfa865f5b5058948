"""The real adapters, chosen by environment variables; only this module reads those."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vastrun.contract.secrets import secrets_among
from vastrun.launcher.app_context import (
    AppContext,
    AppPaths,
    AppUser,
    Factories,
    elapsed,
    lazy_clock,
    steady_clock,
)
from vastrun.launcher.commands.computer import private_words
from vastrun.launcher.commands.settings import read_settings
from vastrun.launcher.core import Origin, Run
from vastrun.launcher.ledger.presence import Presence
from vastrun.launcher.ledger.run_ids import new_id
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ledger.team_connection import TeamConnection, computer_name
from vastrun.launcher.package_files import configs_dir
from vastrun.launcher.ports import (
    Ledger,
    OutputStore,
    Packer,
    Provider,
)
from vastrun.launcher.rate_limit_waits import RateLimitWaits
from vastrun.launcher.ui.question import HeldStream
from vastrun.launcher.ui.screens import LiveScreens, interrupts_on

if TYPE_CHECKING:
    from vastrun.launcher.bundle.secret_command import CommandSecrets
    from vastrun.launcher.bundle.shared_jobs import SharedJobs
    from vastrun.launcher.commands.estimate import WorkloadEstimator
    from vastrun.launcher.commands.export import Exporter
    from vastrun.launcher.commands.rehearse import Rehearsal
    from vastrun.launcher.commands.service import UserService
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.history import SpeedHistory
    from vastrun.launcher.image.lock import Lock
    from vastrun.launcher.notifications.delivery import Sender

_PROGRAM = "from vastrun.launcher.cli import main; main()"
"""Program that runs vastrun if its script is not next to the interpreter."""


def wire(environ: Mapping[str, str]) -> AppContext:
    """Make the context of commands with the real adapters, chosen by environment variables."""
    adapters = _Adapters(environ)
    presence, team = adapters.presence, adapters.team
    return AppContext(
        paths=AppPaths(
            state=adapters.state,
            cache=adapters.cache,
            image_lock=adapters.image_lock,
            config_file=adapters.config_file,
            drivers=adapters.state / "drivers",
        ),
        user=AppUser(
            name=environ.get("LOGNAME") or environ.get("USER") or "",
            who=lambda: presence.who,
            computer=lambda: presence.computer if team else "",
            place="the team's ledger" if team else "the ledger of this computer",
        ),
        make=Factories(
            ledger=adapters.ledger,
            provider=adapters.provider,
            shared_provider=adapters.shared_provider,
            packer=adapters.packer,
            output_store=adapters.output_store,
            notifier=adapters.notifier,
            interrupts=adapters.interrupts,
            rehearsal=adapters.rehearsal,
            exporter=adapters.exporter,
            estimator=adapters.estimator,
            service=adapters.service,
        ),
        python=adapters.python,
        now=adapters.now,
        new_id=lambda: new_id(random.SystemRandom()),
        screens=LiveScreens(adapters.output, environ, adapters.now),
        presence=presence,
        secrets=lambda: secrets_among(environ),
        printed_secrets=lambda: adapters.commands().hand_over(),
        accept_secrets=lambda content: adapters.commands().take_over(content),
        private_words=lambda: private_words(adapters.state),
        rate_limit_waits=adapters.rate_limit_waits,
    )


class _Adapters:
    """Factories of the adapters; those that others share are made once."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        url = environ.get("VASTRUN_LEDGER", "")
        self.team = TeamConnection(url, environ.get("VASTRUN_TEAM_KEY", "")) if url else None
        """Ledger that this computer shares with others; None if it has its own."""
        self.state = self._folder("XDG_STATE_HOME", ".local/state")
        self.cache = self._folder("XDG_CACHE_HOME", ".cache")
        self.config_file = self._folder("XDG_CONFIG_HOME", ".config") / "config.yaml"
        self.image_lock = Path(environ.get("VASTRUN_IMAGE_LOCK") or configs_dir() / "image.lock")
        self.python = environ.get("VASTRUN_PYTHON", sys.executable)
        self.output = HeldStream(lambda: sys.stderr)
        self.rate_limit_waits = RateLimitWaits()
        if self.team is None:
            self.now, self.presence = _process_clock(), Presence(self.state / "launchers")
        else:
            # The database's clock, so that computers with different clocks agree on times and limits.
            self.now = lazy_clock(self.team.time)
            self.presence = Presence(self.state / "launchers", partial(computer_name, self.state))
        self.interrupts = partial(interrupts_on, self.output, environ, self.now)
        self.ledger = cache(self._ledger)
        self.shared_jobs = cache(self._kept)
        self.commands = cache(self._commands)
        self.provider = cache(self._provider)
        self.shared_provider = cache(partial(self._provider, many_runs=True))

    def _folder(self, variable: str, usual: str) -> Path:
        base = self.environ.get(variable, "")
        # The XDG specification says that relative paths must be ignored.
        root = Path(base) if base.startswith("/") else Path.home() / usual
        return root / "vastrun"

    def _ledger(self) -> Ledger:
        if self.team is not None:
            presence = self.presence
            return self.team.open(
                now=self.now,
                alive_here=presence.is_alive_here,
                computer=lambda: presence.computer,
                state=self.state,
            )
        return SqliteLedger(self.state / "ledger.db", now=self.now, alive=self.presence.is_alive)

    def _kept(self) -> SharedJobs | None:
        if self.team is None:
            return None
        from vastrun.launcher.bundle.shared_jobs import SharedJobs

        return SharedJobs(self.team.secrets(self.ledger().id), self.presence.computer)

    def _commands(self) -> CommandSecrets:
        from vastrun.launcher.bundle.secret_command import CommandSecrets

        return CommandSecrets(self.environ)

    def _provider(self, name: str, *, many_runs: bool = False) -> Provider:
        """The provider of that name. Raises UsageError when there is none."""
        from vastrun.launcher.providers import ProviderContext, provider_class

        team = self.team
        context = ProviderContext(
            environ=self.environ,
            state=self.state,
            clock=self.interrupts(),
            uptime=elapsed,
            python=self.python,
            image_lock=self._lock,
            speeds=self._speeds,
            runs=lambda: self.ledger().for_drivers().runs(open_only=True),
            provider=self.shared_provider if many_runs else self.provider,
            settings=lambda: read_settings(self.config_file),
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
            avoid=avoided(self.ledger().runs(causes=HOST_CAUSES, members=True), provider, self.now()),
        )
        workloads = estimator.known(spec)
        if workloads is None or history.speeds:
            return replace(history, workloads=workloads)
        return replace(history, workloads=workloads, efficiency=efficiency_of(runs, estimator.known))

    def _inherited(self) -> dict[str, str]:
        from vastrun.launcher.providers.local import inherited_environment

        return inherited_environment(self.environ)

    def estimator(self) -> WorkloadEstimator:
        from vastrun.launcher.commands.estimate import WorkloadEstimator

        cache = self.cache / "workloads"
        return WorkloadEstimator(python=self.python, environment=self._inherited(), cache=cache)

    def packer(self, origin: Origin) -> Packer:
        from vastrun.launcher.bundle import Bundler

        def values_of(batch: str, point: str) -> Mapping[str, Any]:
            return self.ledger().for_drivers().batches.values_of(batch, point)

        return Bundler(
            self.environ,
            origin=origin,
            values_of=values_of,
            shared_jobs=self.shared_jobs(),
            commands=self.commands(),
        )

    def output_store(self) -> OutputStore:
        from vastrun.launcher.outputs.store import FolderStore
        from vastrun.launcher.ui.render.index import index_of

        def report(run: Run, now: float) -> str:
            from vastrun.launcher.ui.report.run_page import page_of  # when a run has ended

            return page_of(self.ledger(), run, now)

        def index(run: Run, now: float) -> Mapping[str, str]:
            return index_of(run, now, self.ledger().runs(leader=run.id))

        return FolderStore(index=index, report=report)

    def notifier(self, say: Callable[[str], None]) -> Sender:
        from vastrun.launcher.notifications.delivery import Sender
        from vastrun.launcher.ui.render.notifications import notification_document

        return Sender(self.environ, say, notification_document)

    def rehearsal(self, folder: Path) -> Rehearsal:
        from vastrun.launcher.commands.rehearse import Rehearsal

        gpus = {name: self.environ[name] for name in ("CUDA_VISIBLE_DEVICES",) if name in self.environ}
        return Rehearsal(folder, self.python, {**self._inherited(), **gpus})

    def exporter(self) -> Exporter:
        from vastrun.launcher.commands.export import Exporter

        return Exporter(python=self.python, environment=self._inherited())

    def service(self, folder: Path) -> UserService:
        from vastrun.launcher.commands.service import user_service

        script = Path(sys.executable).with_name("vastrun")
        program = [str(script)] if script.exists() else [sys.executable, "-P", "-c", _PROGRAM]
        return user_service(
            [*program, "serve", "--driver"],
            self.environ,
            platform=sys.platform,
            home=Path.home(),
            state=self.state,
            folder=folder,
        )


@cache
def _process_clock() -> Callable[[], float]:
    """Return the clock of this process."""
    return steady_clock()
