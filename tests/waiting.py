"""Waiting for what a test expects. How soon it comes is a benchmark's business: here only that it comes."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

LONGEST_S = 240.0
"""Twenty times as long as anything takes on an idle computer: a busy one fails no test."""

_T = TypeVar("_T")


def eventually(look: Callable[[], _T], *, within_s: float = LONGEST_S, what: str = "it") -> _T:
    """Return the first true value of `look`. Raises AssertionError when there is none in time."""
    deadline = time.monotonic() + within_s
    while not (value := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not happen within {within_s:.0f} s; last seen: {value!r}")
        time.sleep(0.02)
    return value


def has_ended(pid: int | str) -> bool:
    """True once the process is gone, or waits for its parent to ask how it ended.

    One that was killed stands in /proc without its environment for a moment before either.
    """
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Watch:
    """Looks again and again, in a thread of its own, while it is open."""

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.look()

    def look(self) -> None:
        raise NotImplementedError
