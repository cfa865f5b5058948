"""The session of a Python program: its app, the launchers that it has started, and the progress it shows."""

from __future__ import annotations

import io
import os
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TextIO, TypeVar

from vastrun.launcher.api.drivers import ProcessDriver, StartDriver, Target
from vastrun.launcher.app import App
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.screen import OutputStream, StreamScreen, TerminalCapabilities
from vastrun.launcher.ui.screens import PlainScreens

POLL_INTERVAL_S = 0.25
"""Seconds between two polls of a wait."""

_T = TypeVar("_T")


class ApiSession:
    """State shared by all handles; thread-safe."""

    def __init__(self, wire: Callable[[], App], start_driver: StartDriver) -> None:
        """`wire` is called when the session is first used, and again in a forked process."""
        self._wire, self._start_driver = wire, start_driver
        self._app: App | None = None
        self._process = 0
        self._drivers: dict[Target, ProcessDriver] = {}
        self._lock = threading.Lock()

    @property
    def app(self) -> App:
        """Adapters of this process, with silent screens."""
        with self._lock:
            if self._app is None or self._process != os.getpid():
                # A fork must not use its parent's connection to the ledger, or wait for its children.
                self._app, self._process, self._drivers = without_terminal(self._wire()), os.getpid(), {}
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
        secrets = self.app.commands().hand_over()
        with self._lock:
            # Poll all of them, so that none stays a zombie.
            alive = {other for other, driver in self._drivers.items() if driver.is_alive()}
            if target not in alive:
                self._drivers[target] = self._start_driver(target, secrets)

    def is_driving(self, target: Target) -> bool:
        """Return whether a launcher that this session started drives it."""
        driver = self._drivers.get(target)
        return driver is not None and driver.is_alive()

    def pop_ended_driver(self, target: Target) -> ProcessDriver | None:
        """Return the ended launcher that this session started for it, once; else None."""
        return None if self.is_driving(target) else self._drivers.pop(target, None)

    def wait(self, poll: Callable[[], _T | None], timeout: float | None, what: str) -> _T:
        """Call `poll` repeatedly until it returns a result. Raises TimeoutError after `timeout` seconds."""
        clock = self.app.interrupts()
        until = None if timeout is None else clock.now() + timeout
        while True:
            found = poll()
            if found is not None:
                return found
            left_s = POLL_INTERVAL_S if until is None else until - clock.now()
            if left_s <= 0:
                raise TimeoutError(f"{what} has not ended within {timeout:g} s")
            clock.sleep(min(POLL_INTERVAL_S, left_s))

    def watch(self, poll: Callable[[], _T | None], timeout: float | None, what: str, shown: object) -> _T:
        """Wait as `wait`, with the text of `shown` on stderr meanwhile."""

        def poll_and_show() -> _T | None:
            found = poll()
            display.refresh(at_once=found is not None)
            return found

        with closing(ProgressLine(shown, sys.stderr, self.now)) as display:
            return self.wait(poll_and_show, timeout, what)


class _NullStream(io.TextIOBase):
    """A stream that discards all text."""

    def write(self, text: str) -> int:
        """Discard the text."""
        return len(text)


_SILENCE = _NullStream()


def without_terminal(
    app: App, stream: OutputStream = _SILENCE, kind: type[StreamScreen] = StreamScreen
) -> App:
    """Return the app with screens of that kind, whose plain lines go to the stream; by default to none."""
    screen = partial(kind, stream, TerminalCapabilities(live=False, color=False), now=app.now)
    return app.with_changes(screens=PlainScreens(screen))


class ProgressLine:
    """One line of stderr, replaced in place in a terminal; elsewhere a new line when it has changed."""

    def __init__(self, shown: object, stream: TextIO, now: Callable[[], float]) -> None:
        """`shown`: its text is the progress, without control characters."""
        self._shown, self._stream, self._is_live, self._now = shown, stream, stream.isatty(), now
        self._last, self._at = "", float("-inf")

    def refresh(self, *, at_once: bool) -> None:
        """Print the line, if the last one was a while ago."""
        interval_s = 1.0 if self._is_live else 30.0  # lines in a file cannot be replaced
        if not at_once and self._now() - self._at < interval_s:
            return
        line, self._at = str(self._shown), self._now()
        if self._is_live:
            self._stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        elif line != self._last:
            self._stream.write(f"{line}\n")
        self._last = line
        self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._is_live and self._last:
            self._stream.write("\n")
            self._stream.flush()
