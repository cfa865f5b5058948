"""Clocks of this computer: its time zone, the time since its start, epoch seconds that never jump."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache

# Linux's monotonic clock stops while the computer sleeps, a Mac's does not; a rented machine costs meanwhile.
_ELAPSED = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class LocalZone(tzinfo):
    """The time zone of this computer, with daylight saving time."""

    def utcoffset(self, at: datetime | None) -> timedelta | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().utcoffset()

    def dst(self, _: datetime | None) -> None:
        return None

    def tzname(self, at: datetime | None) -> str | None:
        return None if at is None else at.replace(tzinfo=None).astimezone().tzname()

    def fromutc(self, at: datetime) -> datetime:
        return at.replace(tzinfo=UTC).astimezone().replace(tzinfo=self)


def elapsed() -> float:
    """Return the seconds since this computer started; the same for all its processes."""
    return time.clock_gettime(_ELAPSED)


def lazy_clock(wall: Callable[[], float]) -> Callable[[], float]:
    """Return `steady_clock(wall)`, made when it is first read."""
    clock = cache(lambda: steady_clock(wall))
    return lambda: clock()()


def steady_clock(wall: Callable[[], float] = time.time) -> Callable[[], float]:
    """Return a clock of epoch seconds that reads `wall` once and then counts elapsed time."""
    offset = wall() - elapsed()
    return lambda: offset + elapsed()
