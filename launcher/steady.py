"""Clocks that nobody sets forward or back. Time asleep counts."""

from __future__ import annotations

import time
from collections.abc import Callable

# Linux's monotonic clock stands still while the computer sleeps, a Mac's goes on; a machine costs meanwhile.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def elapsed() -> float:
    """Seconds since this computer was started: the same for all its processes."""
    return time.clock_gettime(_ELAPSED)


def steady_clock(wall: Callable[[], float] = time.time) -> Callable[[], float]:
    """Epoch seconds for one process: counts on from what `wall` says now, which is asked this once."""
    offset = wall() - elapsed()
    return lambda: offset + elapsed()
