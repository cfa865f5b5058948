"""Guards of a driven run: a function that is called each second, and one that ends waits and calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from contextlib import contextmanager
from typing import Any

INTERVAL_S = 1.0
"""Seconds between two calls."""


class GuardThread:
    """Calls a function periodically in another thread while a block of code runs.

    The code may wait for a machine, parse its messages or write to a slow disk: the calls do not depend on
    the code's own thread.
    """

    def __init__(self, interval_s: float = INTERVAL_S, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: the clock that measures gaps."""
        self._interval_s, self._now = interval_s, now
        self.calls = 0
        """Number of calls that returned."""
        self.longest_gap_s = 0.0
        """Longest time between two calls, or between one and the start or end of the block."""

    @contextmanager
    def guarding(self, check: Callable[[], None]) -> Iterator[None]:
        """Call `check` each second until the block ends. It must not raise."""
        over = threading.Event()
        thread = threading.Thread(target=self._run, args=(check, over), name="guard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(5.0)  # a call to an unreachable ledger would last

    def _run(self, check: Callable[[], None], over: threading.Event) -> None:
        called_at = self._now()
        while True:
            is_over = over.wait(self._interval_s)
            self.longest_gap_s = max(self.longest_gap_s, self._now() - called_at)
            called_at = self._now()
            if is_over:
                return
            check()
            self.calls += 1


class InterruptibleClock:
    """The Clock port, whose waits end with what a function of the waiting thread raises."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._thread = threading.local()

    @contextmanager
    def interrupting(self, check: Callable[[], None]) -> Iterator[None]:
        """Call `check` during the waits of this thread until the block ends."""
        former = getattr(self._thread, "check", None)
        self._thread.check = check
        try:
            yield
        finally:
            self._thread.check = former

    def sleep(self, seconds: float) -> None:
        """Return after `seconds`. Raises what the check of this thread raises."""
        until, check = time.monotonic() + seconds, getattr(self._thread, "check", None)
        while (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, INTERVAL_S / 4))
            if check is not None:
                check()

    def call(self, act: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return what `act` returns in another thread. Raises what it raises, or the check of this thread:
        then `act` is left to itself, and its next sleep ends it."""
        check = getattr(self._thread, "check", None)
        if check is None:
            return act(*args, **options)
        answer, is_left = Future[Any](), threading.Event()

        def check_left() -> None:
            if is_left.is_set():
                raise CancelledError

        def work() -> None:
            try:
                with self.interrupting(check_left):
                    answer.set_result(act(*args, **options))
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                answer.set_exception(error)

        threading.Thread(target=work, name="provider", daemon=True).start()
        try:
            while not wait((answer,), INTERVAL_S / 4).done:
                check()
        finally:
            is_left.set()
        return answer.result()
