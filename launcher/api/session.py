"""The session of a Python program: its app, and the launchers that it has started."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from vastrun.launcher.api.drivers import DriverProcess, StartDriver, Target
from vastrun.launcher.api.live_display import Shown, live_display, refreshed
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities
from vastrun.launcher.ui.screens import PlainScreens

POLL_INTERVAL_S = 0.25
"""Seconds between two polls of a wait."""

_T = TypeVar("_T")


class ApiSession:
    """State shared by all handles; thread-safe."""

    def __init__(self, wire: Callable[[], AppContext], start_driver: StartDriver) -> None:
        """`wire` is called when the session is first used, and again in a forked process."""
        self._wire, self._start_driver = wire, start_driver
        self._app: AppContext | None = None
        self._process = 0
        self._drivers: dict[Target, DriverProcess] = {}
        self._lock = threading.Lock()

    @property
    def app(self) -> AppContext:
        """Adapters of this process, with silent screens."""
        with self._lock:
            if self._app is None or self._process != os.getpid():
                # A fork must not use its parent's connection to the ledger, or wait for its children.
                self._app, self._process, self._drivers = silent(self._wire()), os.getpid(), {}
            return self._app

    @property
    def ledger(self) -> Ledger:
        """The ledger of runs and batches."""
        return self.app.ledger()

    def now(self) -> float:
        """Return epoch seconds."""
        return self.app.now()

    def drive(self, target: Target) -> None:
        """Start a launcher for the run or batch, unless this session has one running."""
        secrets = self.app.printed_secrets()
        with self._lock:
            # Poll all of them, so that none stays a zombie.
            alive = {other for other, driver in self._drivers.items() if driver.is_alive()}
            if target not in alive:
                self._drivers[target] = self._start_driver(target, secrets)

    def is_driving(self, target: Target) -> bool:
        """Return whether a launcher that this session started drives it."""
        driver = self._drivers.get(target)
        return driver is not None and driver.is_alive()

    def pop_ended_driver(self, target: Target) -> DriverProcess | None:
        """Return the ended launcher that this session started for it, once; else None."""
        return None if self.is_driving(target) else self._drivers.pop(target, None)

    def wait(self, poll: Callable[[], _T | None], timeout: float | None, what: str) -> _T:
        """Call `poll` repeatedly until it returns a result. Raises TimeoutError after `timeout` seconds."""
        clock = self.app.clock()
        until = None if timeout is None else clock.now() + timeout
        while True:
            found = poll()
            if found is not None:
                return found
            left_s = POLL_INTERVAL_S if until is None else until - clock.now()
            if left_s <= 0:
                raise TimeoutError(f"{what} has not ended within {timeout:g} s")
            clock.sleep(min(POLL_INTERVAL_S, left_s))

    def watch(self, poll: Callable[[], _T | None], timeout: float | None, what: str, shown: Shown) -> _T:
        """Wait as `wait`, and show the progress meanwhile."""
        display = live_display(shown)
        try:
            return self.wait(refreshed(poll, display, self.now), timeout, what)
        finally:
            display.close()


def silent(app: AppContext) -> AppContext:
    """Return the app with silent screens."""

    def screen(began: float) -> StreamScreen:
        return StreamScreen(
            _NullStream(), TerminalCapabilities(live=False, color=False), began=began, now=app.now
        )

    return replace(app, screens=PlainScreens(screen))


class _NullStream:
    """A stream that discards all text."""

    def write(self, text: str) -> object:
        """Discard the text."""
        return len(text)

    def flush(self) -> None:
        """Do nothing."""

    def fileno(self) -> int:
        """Raise OSError: it has none."""
        raise OSError
