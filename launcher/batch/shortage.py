"""Shortage: a market with fewer machines than a batch would take at once: points wait for each other's."""

from __future__ import annotations

import math

from vastrun.launcher.decisions.schedule import PointState

RETRY_INTERVAL_S = 60.0
"""Seconds after which one more concurrent run is tried."""


class Shortage:
    """Machine shortage as one drive of a batch has seen it."""

    def __init__(self) -> None:
        self._slots, self._since = math.inf, 0.0
        self._without: dict[str, str] = {}
        """Reasons why points found no machine although no other run had one, by point."""

    def note(self, state: PointState, running: int, now: float) -> str:
        """Note that a point found no machine while `running` other runs continued; return a new message."""
        is_new = running > 0 and self._slots == math.inf
        if running:
            self._slots, self._since = running, now
        else:
            self._without[state.point.id] = "" if state.last is None else state.last.detail
        return f"no more machines available; {running} points are running, the others wait" if is_new else ""

    def slots(self, parallel: int, now: float) -> int:
        """Return the maximum number of concurrent runs."""
        return int(min(parallel, self._slots + max(0.0, now - self._since) // RETRY_INTERVAL_S))

    def is_hopeless(self, state: PointState) -> bool:
        """Return whether the point found no machine although no other run had one."""
        return state.point.id in self._without

    def stop_reason(self, waiting: int, same_cause: int) -> str:
        """Return why nothing new is started any more; empty while other points may find machines."""
        if not self._without or (waiting and len(self._without) < same_cause):
            return ""
        return f"no offer: {list(self._without.values())[-1]}"
