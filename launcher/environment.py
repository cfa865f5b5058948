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
from launcher.core.job import JobSpec
from launcher.decisions.speed_history import SpeedHistory, speed_history_of
from launcher.decisions.workload import efficiency_of
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
    from launcher.ui.notify import UrlNotifier


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
        settings=lambda: read_settings(_config_file(environ)),
        book=None if team is None else team.book,
        secrets=None if team is None else team.secrets(ledger().id),
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
