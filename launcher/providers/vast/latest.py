"""Latest: one answer for many threads that ask the same thing."""

from __future__ import annotations

import itertools
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
        self._changes = itertools.count(1)
        self._changed = self._answered = 0
        """The last change of what it is about, and the last one before the answer was asked for."""
        self.asked_at = 0.0
        """When the newest answer was asked for."""

    def get(self) -> _T:
        """Return the answer. Whoever comes while it is asked waits for it. Raises as the question does."""
        with self._lock:
            is_young = 0 <= self._now() - self.asked_at < self._age_s
            if self._answer is None or not is_young or self._answered != self._changed:
                self._answered, self.asked_at = self._changed, self._now()
                self._answer = None
                self._answer = self._ask()
            return self._answer

    def forget(self) -> None:
        """Have no later call answered by what was asked before: what it is about has changed.

        Does not wait for an answer that is on its way. All who forget meanwhile share the next one.
        """
        self._changed = next(self._changes)
