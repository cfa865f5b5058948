"""Latest: one answer for many threads that ask the same thing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class Latest(Generic[_T]):
    """The newest answer to a question; it is asked again once that one is older than `age_s`."""

    def __init__(self, ask: Callable[[], _T], now: Callable[[], float], age_s: float) -> None:
        self._ask, self._now, self._age_s = ask, now, age_s
        self._lock = threading.Lock()
        self._answer: _T | None = None
        self.asked_at = 0.0
        """When the newest answer was asked for."""

    def get(self) -> _T:
        """Return the answer. Whoever comes while it is asked waits for it. Raises as the question does."""
        with self._lock:
            if self._answer is None or not 0 <= self._now() - self.asked_at < self._age_s:
                self.asked_at = self._now()
                self._answer = None
                self._answer = self._ask()
            return self._answer

    def forget(self) -> None:
        """Ask again at the next call: what it is about has changed."""
        with self._lock:
            self._answer = None
