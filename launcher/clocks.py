"""This computer's clocks: its zone, the time since its start, epoch seconds that nobody sets back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache

# Linux's monotonic clock stands still while the computer sleeps, a Mac's goes on; a machine costs meanwhile.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LocalZone(tzinfo):
    """The zone of this computer, with its summer time."""

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, at: datetime | None) -> str | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, at: datetime) -> datetime:
        return at.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def elapsed() -> float:
    """Return the seconds since this computer was started: the same for all its processes."""
    return time.clock_gettime(_ELAPSED)


def late_clock(wall: Callable[[], float]) -> Callable[[], float]:
    """Return `steady_clock(wall)`, whose `wall` is asked when the clock is first read."""
    clock = cache(lambda: steady_clock(wall))
    return lambda: clock()()


def steady_clock(wall: Callable[[], float] = time.time) -> Callable[[], float]:
    """Count epoch seconds for one process, on from what `wall` says now, which is asked this once."""
    offset = wall() - elapsed()
    return lambda: offset + elapsed()
