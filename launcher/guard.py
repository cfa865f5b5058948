"""GuardThread: calls a function each second, whatever the guarded code is doing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

INTERVAL_S = 1.0
"""Seconds between two calls."""
_JOIN_S = 5.0
"""Seconds that the end of a block waits for a call, as for one to a ledger that is out of reach."""


class GuardThread:
    """Calls a function again and again in another thread while a block of code runs.

    The code may wait for a machine, parse what it sent or write to a slow disk: the function is called all
    the same, since it needs nothing of the code's own thread.
    """

    def __init__(self, interval_s: float = INTERVAL_S, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: the clock that gaps are measured by."""
        self._interval_s, self._now = interval_s, now
        self.looks = 0
        """Number of calls that returned."""
        self.longest_gap_s = 0.0
        """Longest time between two calls, or between one and the beginning or the end of the block."""

    @contextmanager
    def guarding(self, look: Callable[[], None]) -> Iterator[None]:
        """Call `look` each second until the block ends. It must not raise."""
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(look, over), name="guard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(_JOIN_S)

    def _run(self, look: Callable[[], None], over: threading.Event) -> None:
        looked_at = self._now()
        while True:
            is_over = over.wait(self._interval_s)
            self.longest_gap_s = max(self.longest_gap_s, self._now() - looked_at)
            looked_at = self._now()
            if is_over:
                return
            look()
            self.looks += 1
