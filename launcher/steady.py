"""A clock for one process: epoch seconds that nobody sets forward or back. Time asleep counts."""

from __future__ import annotations

import time
from collections.abc import Callable

# Linux's monotonic clock stands still while the computer sleeps, a Mac's goes on; a machine costs meanwhile.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def steady_clock(wall: Callable[[], float] = time.time) -> Callable[[], float]:
    """Counts on from what `wall` says now, which is asked this once."""
    offset = wall() - time.clock_gettime(_ELAPSED)
    return lambda: offset + time.clock_gettime(_ELAPSED)
