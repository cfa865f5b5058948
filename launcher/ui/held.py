"""A stream that can be held: while a question stands on the terminal, what others print waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO


class HeldStream:
    """Passes text on, or keeps it while held: not much, as a run's log is read in bounded amounts."""

    def __init__(self, stream: Callable[[], TextIO]) -> None:
        """`stream` is asked each time: what is stderr may change."""
        self._stream = stream
        self._waiting: list[str] | None = None
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[None]:
        """In here, nothing is printed; afterwards all that waited is, in order."""
        with self._lock:
            self._waiting = []
        try:
            yield
        finally:
            with self._lock, suppress(OSError):
                text, self._waiting = "".join(self._waiting), None
                self._stream().write(text)
                self._stream().flush()

    def write(self, text: str) -> None:
        """Print the text, now or later. Raises OSError when the stream was closed."""
        with self._lock:
            if self._waiting is None:
                self._stream().write(text)
            else:
                self._waiting.append(text)

    def flush(self) -> None:
        """Show what was written, unless it waits. Raises OSError when the stream was closed."""
        with self._lock:
            if self._waiting is None:
                self._stream().flush()

    def fileno(self) -> int:
        """The descriptor that it is shown on. Raises OSError when there is none."""
        return self._stream().fileno()
