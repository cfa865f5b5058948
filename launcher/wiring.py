"""Wiring: the one place that reads the environment and picks adapters."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.commands.attempts import Attempts
from launcher.core import NOTHING, Origin, UserRequest
from launcher.decisions.speed_history import speed_history_of
from launcher.flow.context import Services
from launcher.ledger.presence import Presence
from launcher.ledger.run_ids import new_id
from launcher.ledger.sqlite import SqliteLedger
from launcher.ports import Clock, Ledger, Notifier, OutputStore, Packer, Provider, Screen
from launcher.shipped import configs_dir
from launcher.ui.interrupts import Interrupts, say_on
from launcher.ui.question import HeldStream, ask_at
from launcher.ui.screen import Look, StreamScreen

if TYPE_CHECKING:
    from launcher.commands.exporting import Exporter
    from launcher.commands.rehearsing import Rehearsal
    from launcher.ui.notify import UrlNotifier

DEFAULT_PROVIDER = "local"

# Linux's monotonic clock stands still while the computer sleeps, a Mac's goes on; a machine costs meanwhile.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


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
    notifier: Callable[[Callable[[str], None]], UrlNotifier]
    """Says what it cannot deliver."""
    interrupts: Callable[[UserRequest, UserRequest, float | None, bool], Interrupts]
    """Of what the first Ctrl-C means (NONE: ask), the request from the start, and until when to stay."""
    now: Callable[[], float]
    new_id: Callable[[], str]
    who: Callable[[], str]
    rehearsal: Callable[[Path], Rehearsal]
    """In that folder."""
    exporter: Callable[[], Exporter]

    def clock(self) -> Clock:
        """Time, for a command that drives nothing."""
        return self.interrupts(UserRequest.STOP, UserRequest.NONE, None, False)

    def services_for(self, provider: str, began: float) -> Services:
        """What reaches machines, for a command that drives nothing."""
        interrupts = self.interrupts(UserRequest.STOP, UserRequest.NONE, None, False)
        return self.services(provider, interrupts, self.screen(began))

    @contextmanager
    def attempts(self, interrupts: Interrupts, *, began: float) -> Iterator[Attempts]:
        """Drives runs for a user who may interrupt."""
        screen = self.screen(began)
        notifier = self.notifier(screen.note)

        def services_for(provider: str, origin: Origin) -> Services:
            return self.services(provider, interrupts, screen, origin, notifier)

        try:
            yield Attempts(services_for=services_for, new_id=self.new_id)
        finally:
            notifier.close()
            screen.close()

    def services(
        self,
        provider: str,
        interrupts: Interrupts,
        screen: Screen,
        origin: Origin = NOTHING,
        notifier: Notifier | None = None,
    ) -> Services:
        """What drives one run."""
        return Services(
            provider=self.provider(provider),
            ledger=self.ledger(),
            clock=interrupts,
            packer=self.packer(origin),
            output_store=self.output_store(),
            screen=screen,
            user_requests=interrupts,
            who=self.who(),
            notifier=notifier,
        )


def wire(environ: Mapping[str, str]) -> Wiring:
    """The real adapters, as the environment asks for them."""
    state = _folder(environ, "XDG_STATE_HOME", ".local/state")
    presence = Presence(state / "launchers")
    output = HeldStream(lambda: sys.stderr)

    @cache
    def ledger() -> Ledger:
        return SqliteLedger(state / "ledger.db", now=_now(), alive=presence.is_alive)

    @cache
    def provider(name: str) -> Provider:
        return _provider(environ, state, output, ledger, provider, name)

    return Wiring(
        state=state,
        cache=_folder(environ, "XDG_CACHE_HOME", ".cache"),
        image_lock=_image_lock(environ),
        python=_python(environ),
        ledger=ledger,
        provider=provider,
        packer=partial(_packer, environ),
        output_store=_output_store,
        screen=partial(_screen, output, environ),
        notifier=partial(_notifier, environ),
        interrupts=partial(_interrupts, output, environ),
        now=_now(),
        new_id=lambda: new_id(random.SystemRandom()),
        who=lambda: presence.who,
        rehearsal=partial(_rehearsal, environ),
        exporter=partial(_exporter, environ),
    )


def _provider(
    environ: Mapping[str, str],
    state: Path,
    output: HeldStream,
    ledger: Callable[[], Ledger],
    provider: Callable[[str], Provider],
    name: str,
) -> Provider:
    """The provider of that name. Raises UsageError when there is none."""
    from launcher.image.lock import read_lock
    from launcher.providers import ProviderContext, provider_class

    context = ProviderContext(
        environ=environ,
        state=state,
        clock=_interrupts(output, environ, UserRequest.STOP, UserRequest.NONE, None, False),
        uptime=elapsed,
        python=_python(environ),
        image_lock=lambda: read_lock(_image_lock(environ)),
        speeds=lambda provider, spec: speed_history_of(ledger().runs(), provider, spec),
        runs=lambda: ledger().runs(open_only=True),
        provider=provider,
    )
    return provider_class(name).of(context)


def _folder(environ: Mapping[str, str], variable: str, usual: str) -> Path:
    base = environ.get(variable, "")
    # A relative path is to be ignored, says the XDG specification.
    root = Path(base) if base.startswith("/") else Path.home() / usual
    return root / "vastrun"


def _image_lock(environ: Mapping[str, str]) -> Path:
    chosen = environ.get("VASTRUN_IMAGE_LOCK", "")
    return Path(chosen) if chosen else configs_dir() / "image.lock"


def _packer(environ: Mapping[str, str], origin: Origin) -> Packer:
    from launcher.bundle import Bundler

    return Bundler(environ, origin=origin)


def _output_store() -> OutputStore:
    from launcher.outputs.store import FolderStore
    from launcher.ui.render.index import index_of

    return FolderStore(index=index_of)


def _screen(output: HeldStream, environ: Mapping[str, str], began: float) -> StreamScreen:
    return StreamScreen(output, Look.of(sys.stderr, environ), began=began, now=_now())


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


def _interrupts(
    output: HeldStream,
    environ: Mapping[str, str],
    first: UserRequest,
    request: UserRequest,
    until: float | None,
    views: bool,
) -> Interrupts:
    """Asks at a terminal what Ctrl-C means when `first` is NONE; elsewhere it then means stop."""
    say = say_on(sys.stderr.fileno())
    ask = None
    if first is UserRequest.NONE and sys.stdin.isatty() and sys.stderr.isatty():
        ask = ask_at(sys.stdin.fileno(), say, output, live=Look.of(sys.stderr, environ).live)
    return Interrupts(
        say=say,
        ask=ask,
        first=UserRequest.STOP if first is UserRequest.NONE else first,
        request=request,
        until=until,
        views=views,
        now=_now(),
    )


@cache
def _now() -> Callable[[], float]:
    """The one clock of this process."""
    return steady_clock()


def elapsed() -> float:
    """Seconds since this computer was started: the same for all its processes."""
    return time.clock_gettime(_ELAPSED)


def steady_clock(wall: Callable[[], float] = time.time) -> Callable[[], float]:
    """Epoch seconds for one process: counts on from what `wall` says now, which is asked this once."""
    offset = wall() - elapsed()
    return lambda: offset + elapsed()
