"""CachedQuery: one result of a query for many threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_T = TypeVar("_T")


class CachedQuery(Generic[_T]):
    """Caches a query's result for `age_s` seconds."""

    def __init__(self, ask: Callable[[], _T], now: Callable[[], float], age_s: float) -> None:
        self._ask, self._now, self._age_s = ask, now, age_s
        self._lock = threading.Lock()
        self._answer: _T | None = None
        self._changes = itertools.count(1)
        self._changed = self._answered_change = 0
        """Number of the last invalidation, and of the last one before the cached query."""
        self.asked_at = 0.0
        """Time of the newest query."""

    def get(self) -> _T:
        """Return the result; callers during a query wait for it. Raises the query's errors."""
        with self._lock:
            is_young = 0 <= self._now() - self.asked_at < self._age_s
            if self._answer is None or not is_young or self._answered_change != self._changed:
                self._answered_change, self.asked_at = self._changed, self._now()
                self._answer = None
                self._answer = self._ask()
            return self._answer

    def invalidate(self) -> None:
        """Discard the cached result, and the result of a query that is in progress.

        Does not wait. Several invalidations during a query share the next one.
        """
        self._changed = next(self._changes)
