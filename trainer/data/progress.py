"""Progress: a bar on a terminal; elsewhere a line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TextIO

_WIDTH = 30
_TERMINAL_S, _LOG_S = 0.1, 10.0


class Bar:
    """How far a file is. One that is quickly made says nothing in a log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._every_s = _TERMINAL_S if self._terminal else _LOG_S
        self._told_at = time.monotonic()
        self._shown = False

    def show(self, name: str, done: int, of: int) -> None:
        """So many samples of the file are solved."""
        now = time.monotonic()
        if now - self._told_at < self._every_s and not (self._shown and done == of):
            return
        self._told_at = now
        if not self._terminal:
            print(f"{name}: {done} of {of} samples", file=self._stream, flush=True)
            return
        filled = _WIDTH * done // of
        bar = "█" * filled + "░" * (_WIDTH - filled)
        self._stream.write(f"\r\x1b[K{bar} {100 * done // of:3d} % {name}")
        self._stream.flush()
        self._shown = True

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing of the bar is left on the terminal."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
