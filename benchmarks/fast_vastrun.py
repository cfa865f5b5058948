"""`python -m benchmarks.fast_vastrun ...`: the command `vastrun`, for which time passes faster.

Its clocks alone are others: all that it does is what the installed command does. In: the command line, and
FAST_CLOCK, as `variables` writes it.
"""

import os
import threading
from collections.abc import Mapping
from functools import cache, partial

from tests.emulators.clock import Clock
from vastrun.launcher.app import App
from vastrun.launcher.cli import cli
from vastrun.launcher.core import UserRequest
from vastrun.launcher.decisions.history import speed_history_of
from vastrun.launcher.image.lock import read_lock
from vastrun.launcher.ledger.presence import Presence
from vastrun.launcher.ledger.sqlite import SqliteLedger
from vastrun.launcher.ports import Provider
from vastrun.launcher.providers import ProviderContext
from vastrun.launcher.providers.vast import VastProvider
from vastrun.launcher.ui.interrupts import Interrupts

_VARIABLE = "FAST_CLOCK"


def variables(clock: Clock) -> Mapping[str, str]:
    """The environment in which a command has the same time as `clock`."""
    return {_VARIABLE: f"{clock.factor!r} {clock.began!r} {clock.started!r}"}


def main() -> None:
    """The program."""
    factor, began, started = map(float, os.environ[_VARIABLE].split())
    clock = Clock(factor, began=began, started=started)
    cli(prog_name="vastrun", obj=_faster(App(os.environ), clock))


class _FastInterrupts(Interrupts):
    """Whose seconds are those of the clock."""

    factor = 1.0

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds / self.factor)


class _FastSignal:
    """The WakeSignal of many threads, likewise."""

    def __init__(self, factor: float) -> None:
        self._factor, self._condition = factor, threading.Condition()

    def wait(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait(max(0.0, seconds) / self._factor)

    def wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


def _faster(app: App, clock: Clock) -> App:
    @cache
    def ledger() -> SqliteLedger:
        alive = Presence(app.state / "launchers").is_alive
        return SqliteLedger(app.state / "ledger.db", now=clock.now, alive=alive)

    @cache
    def provider(name: str, *, many_runs: bool = False) -> Provider:
        context = ProviderContext(
            environ=os.environ,
            state=app.state,
            clock=clock,
            uptime=clock.now,
            python=app.python,
            image_lock=lambda: read_lock(app.image_lock),
            speeds=lambda name, spec: speed_history_of(ledger().measured(), name, spec),
            runs=lambda: ledger().runs(open_only=True),
            provider=provider,
            many_runs=many_runs,
        )
        assert name == VastProvider.name
        return VastProvider.of(context)

    def interrupts(
        first: UserRequest = UserRequest.STOP,
        request: UserRequest = UserRequest.NONE,
        until: float | None = None,
        views: bool = False,
    ) -> Interrupts:
        fast = _FastInterrupts(
            say=lambda _: None,
            first=UserRequest.STOP if first is UserRequest.NONE else first,
            request=request,
            until=until,
            views=views,
            now=clock.now,
        )
        fast.factor = clock.factor
        return fast

    return app.with_changes(
        now=clock.now,
        ledger=ledger,
        provider=provider,
        shared_provider=partial(provider, many_runs=True),
        wake_signal=lambda: _FastSignal(clock.factor),
        interrupts=interrupts,
    )


if __name__ == "__main__":
    main()
