"""Calendar: days and months in the user's time zone, and times as users type them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo

_AGO_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_AGO = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)([mhdw])", re.ASCII)
_DAY = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d))?", re.ASCII)
_EXPECTED = "expected a day like 2026-11-01, a month like 2026-11, today, or 7d or 24h ago"


@dataclass(frozen=True, kw_only=True)
class Span:
    """A day or a month."""

    name: str
    """`2026-11-01`, `2026-11`."""
    since: float
    until: float
    """Epoch seconds; the end is no part of it."""


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """Calendar in the user's time zone."""

    zone: tzinfo | None = None
    """Time zone; None: that of this computer."""

    def day(self, at: float) -> Span:
        """Return the day that the moment is in."""
        return self._day(datetime.fromtimestamp(at, self.zone).date())

    def month(self, at: float) -> Span:
        """Return the month that the moment is in."""
        return self._month(datetime.fromtimestamp(at, self.zone).date())

    def zone_name(self, at: float) -> str:
        """Return the name and offset of the time zone at that moment: `CET, UTC+01:00`."""
        moment = datetime.fromtimestamp(at, self.zone).astimezone(self.zone)
        return f"{moment.tzname()}, UTC{moment.isoformat()[-6:]}"

    def since(self, text: str, now: float) -> float:
        """Return when `--since` begins: that long ago, or with that day or month. Raises ValueError."""
        ago_s = _ago_s(text)
        return self._named(text, now).since if ago_s is None else now - ago_s

    def until(self, text: str, now: float) -> float:
        """Return when `--until` ends: that long ago, or with that day or month. Raises ValueError."""
        ago_s = _ago_s(text)
        return self._named(text, now).until if ago_s is None else now - ago_s

    def _named(self, text: str, now: float) -> Span:
        if text == "today":
            return self.day(now)
        found = _DAY.fullmatch(text)
        try:
            if found is not None:
                first = date(int(found[1]), int(found[2]), int(found[3] or 1))
                return self._day(first) if found[3] else self._month(first)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{_EXPECTED}, got {text!r}: there is no such day") from error
        raise ValueError(f"{_EXPECTED}, got {text!r}")

    def _day(self, day: date) -> Span:
        return Span(
            name=day.isoformat(), since=self._midnight(day), until=self._midnight(day + timedelta(days=1))
        )

    def _month(self, day: date) -> Span:
        first = day.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
        return Span(name=f"{first:%Y-%m}", since=self._midnight(first), until=self._midnight(following))

    def _midnight(self, day: date) -> float:
        return datetime.combine(day, time(), self.zone).timestamp()


def _ago_s(text: str) -> float | None:
    found = _AGO.fullmatch(text)
    return None if found is None else float(found[1]) * _AGO_S[found[2]]
