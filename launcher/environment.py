"""The real adapters, as the environment asks for them: the one place that reads it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launcher.clocks import elapsed, late_clock, steady_clock
from launcher.commands.computer import private_words
from launcher.commands.settings import read_settings
from launcher.core import Origin, Run, UserRequest
from launcher.ledger.joining import TeamLedger, name_of_computer
from launcher.ledger.presence import Presence
from launcher.ledger.run_ids import new_id
from launcher.ledger.sqlite import SqliteLedger
from launcher.ports import (
    Ledger,
    OutputStore,
    Packer,
    Provider,
)
from launcher.shipped import configs_dir
from launcher.transcript.plain import secrets_among
from launcher.ui.question import HeldStream
from launcher.ui.screens import (
    interrupts_on,
    list_screen_on,
    plain_screen_on,
    replay_screen_on,
    screen_on,
)
from launcher.wiring import Wiring

if TYPE_CHECKING:
    from launcher.bundle.kept import KeptJobs
    from launcher.commands.exporting import Exporter
    from launcher.commands.foretelling import Foreteller
    from launcher.commands.rehearsing import Rehearsal
    from launcher.commands.service import UserService
    from launcher.core.job import JobSpec
    from launcher.decisions.speed_history import SpeedHistory
    from launcher.image.lock import Lock
    from launcher.ui.notify import UrlNotifier

_PROGRAM = "from launcher.cli import main; main()"
"""Runs vastrun where the interpreter has no script of it."""


def wire(environ: Mapping[str, str]) -> Wiring:
    """Choose the real adapters, as the environment asks for them."""
    shared = _Shared(environ)
    output, now, presence = shared.output, shared.now, shared.presence
    return Wiring(
        state=shared.state,
        cache=_folder(environ, "XDG_CACHE_HOME", ".cache"),
        image_lock=_image_lock(environ),
        python=_python(environ),
        ledger=shared.ledger,
        provider=shared.provider,
        packer=partial(_packer, environ, shared.ledger, shared.kept),
        output_store=partial(_output_store, shared.ledger),
        screen=lambda began: screen_on(output, environ, began=began, now=now),
        list_screen=lambda began, listed: list_screen_on(output, environ, listed, began=began, now=now),
        plain_screen=lambda began: plain_screen_on(output, environ, began=began, now=now),
        notifier=partial(_notifier, environ),
        interrupts=partial(interrupts_on, output, environ, now),
        now=now,
        new_id=lambda: new_id(random.SystemRandom()),
        who=lambda: presence.who,
        user=_user(environ),
        place="the team's ledger" if shared.team else "the ledger of this computer",
        computer=lambda: presence.computer if shared.team else "",
        rehearsal=partial(_rehearsal, environ),
        exporter=partial(_exporter, environ),
        foreteller=partial(_foreteller, environ),
        crowd=shared.crowd,
        secrets=lambda: secrets_among(environ),
        private_words=lambda: private_words(shared.state),
        replay_screen=lambda began, now: replay_screen_on(environ, began=began, now=now),
        config_file=_config_file(environ),
        service=partial(_service, environ, shared.state),
        drivers=shared.state / "drivers",
        presence=presence,
    )


class _Shared:
    """What several adapters work with: one of each, made when it is first asked for."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ, self.team = environ, _team(environ)
        self.state = _folder(environ, "XDG_STATE_HOME", ".local/state")
        self.output = HeldStream(lambda: sys.stderr)
        if self.team is None:
            self.now, self.presence = _now(), Presence(self.state / "launchers")
        else:
            # Computers whose clocks differ agree on when a run began, and on how long it may go on.
            self.now = late_clock(self.team.time)
            self.presence = Presence(self.state / "launchers", partial(name_of_computer, self.state))
        self.ledger = cache(self._ledger)
        self.kept = cache(self._kept)
        self.provider = cache(self._provider)
        self.crowd = cache(partial(self._provider, crowd=True))

    def _ledger(self) -> Ledger:
        if self.team is not None:
            return self.team.open(now=self.now, alive_here=self.presence.is_alive_here)
        return SqliteLedger(self.state / "ledger.db", now=self.now, alive=self.presence.is_alive)

    def _kept(self) -> KeptJobs | None:
        if self.team is None:
            return None
        from launcher.bundle.kept import KeptJobs

        return KeptJobs(self.team.secrets(self.ledger().id), self.presence.computer)

    def _provider(self, name: str, *, crowd: bool = False) -> Provider:
        """The provider of that name. Raises UsageError when there is none."""
        from launcher.providers import ProviderContext, provider_class

        environ, team = self.environ, self.team
        context = ProviderContext(
            environ=environ,
            state=self.state,
            clock=interrupts_on(
                self.output, environ, self.now, UserRequest.STOP, UserRequest.NONE, None, False
            ),
            uptime=elapsed,
            python=_python(environ),
            image_lock=partial(_read_lock, environ),
            speeds=partial(_speeds, environ, self.ledger),
            runs=lambda: self.ledger().runs(open_only=True),
            provider=self.crowd if crowd else self.provider,
            settings=lambda: read_settings(_config_file(environ)),
            book=None if team is None else team.book,
            secrets=None if team is None else team.secrets(self.ledger().id),
            crowd=crowd,
        )
        return provider_class(name).of(context)


def _team(environ: Mapping[str, str]) -> TeamLedger | None:
    """The ledger that this computer shares with others; None: it has its own. Raises UsageError."""
    url = environ.get("VASTRUN_LEDGER", "")
    return TeamLedger(url, environ.get("VASTRUN_TEAM_KEY", "")) if url else None


def _user(environ: Mapping[str, str]) -> str:
    return environ.get("LOGNAME") or environ.get("USER") or ""


def _speeds(
    environ: Mapping[str, str], ledger: Callable[[], Ledger], provider: str, spec: JobSpec
) -> SpeedHistory:
    """What is known of the job's speed: measured, and foretold where `plan` did so before."""
    from launcher.decisions.speed_history import speed_history_of
    from launcher.decisions.workload import efficiency_of

    runs, foreteller = ledger().measured(), _foreteller(environ)
    history = speed_history_of(runs, provider, spec)
    workloads = foreteller.known(spec)
    if workloads is None or history.speeds:
        return replace(history, workloads=workloads)
    return replace(history, workloads=workloads, efficiency=efficiency_of(runs, foreteller.known))


def _read_lock(environ: Mapping[str, str]) -> Lock:
    from launcher.image.lock import read_lock

    return read_lock(_image_lock(environ))


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


def _service(environ: Mapping[str, str], state: Path, folder: Path) -> UserService:
    from launcher.commands.service import user_service

    script = Path(sys.executable).with_name("vastrun")
    program = [str(script)] if script.exists() else [sys.executable, "-P", "-c", _PROGRAM]
    return user_service(
        [*program, "serve", "--driver"],
        environ,
        platform=sys.platform,
        home=Path.home(),
        state=state,
        folder=folder,
    )


def _python(environ: Mapping[str, str]) -> str:
    return environ.get("VASTRUN_PYTHON", sys.executable)


@cache
def _now() -> Callable[[], float]:
    """The one clock of this process."""
    return steady_clock()
