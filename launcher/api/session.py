"""The session of a program: its wiring, the launchers that it has started, and how it waits for them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from vastrun.launcher.api.drivers import DriverProcess, StartDriver, Target
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities
from vastrun.launcher.ui.screens import PlainScreens
from vastrun.launcher.wiring import Wiring

LOOK_S = 0.25
"""Between two looks at what is waited for."""

_T = TypeVar("_T")


class ApiSession:
    """What handles work with. Any thread may use it."""

    def __init__(self, wire: Callable[[], Wiring], start_driver: StartDriver) -> None:
        """`wire` is called when the session is first used, and again in a process that was forked off."""
        self._wire, self._start_driver = wire, start_driver
        self._wiring: Wiring | None = None
        self._process = 0
        self._drivers: dict[Target, DriverProcess] = {}
        self._lock = threading.Lock()

    @property
    def wiring(self) -> Wiring:
        """The adapters of this process; they print nothing."""
        with self._lock:
            if self._wiring is None or self._process != os.getpid():
                # A fork must not use its parent's connection to the ledger, nor wait for its children.
                self._wiring, self._process, self._drivers = silent(self._wire()), os.getpid(), {}
            return self._wiring

    @property
    def ledger(self) -> Ledger:
        """Runs and batches."""
        return self.wiring.ledger()

    def now(self) -> float:
        """Return epoch seconds."""
        return self.wiring.now()

    def drive(self, target: Target) -> None:
        """Start a launcher for the run or batch, unless one that this session started is at work."""
        with self._lock:
            # All are asked, so that none of them stays as a zombie that nobody waits for.
            alive = {other for other, driver in self._drivers.items() if driver.is_alive()}
            if target not in alive:
                self._drivers[target] = self._start_driver(target)

    def is_driving(self, target: Target) -> bool:
        """Return whether a launcher that this session started is at work on it."""
        driver = self._drivers.get(target)
        return driver is not None and driver.is_alive()

    def ended_driver(self, target: Target) -> DriverProcess | None:
        """Return the launcher that this session started for it and that has ended, once; else None."""
        return None if self.is_driving(target) else self._drivers.pop(target, None)

    def wait(self, look: Callable[[], _T | None], timeout: float | None, what: str) -> _T:
        """Return what `look` finds, looking again and again. Raises TimeoutError after `timeout` seconds."""
        clock = self.wiring.clock()
        until = None if timeout is None else clock.now() + timeout
        while True:
            found = look()
            if found is not None:
                return found
            left_s = LOOK_S if until is None else until - clock.now()
            if left_s <= 0:
                raise TimeoutError(f"{what} has not ended within {timeout:g} s")
            clock.sleep(min(LOOK_S, left_s))


def silent(wiring: Wiring) -> Wiring:
    """Return the wiring with a screen that shows nothing."""

    def screen(began: float) -> StreamScreen:
        return StreamScreen(
            _Nowhere(), TerminalCapabilities(live=False, color=False), began=began, now=wiring.now
        )

    return replace(wiring, screens=PlainScreens(screen))


class _Nowhere:
    """A stream that keeps nothing."""

    def write(self, text: str) -> object:
        """Forget the text."""
        return len(text)

    def flush(self) -> None:
        """Do nothing."""

    def fileno(self) -> int:
        """Raise OSError: it has none."""
        raise OSError
