"""Moments as a user writes them: a time of day, a date with a time, either with a zone or without."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

_MOMENT = re.compile(
    r"(?:(\d{4}-\d\d-\d\d)(?:[Tt]|\s+))?(\d{1,2}):(\d\d)(?::(\d\d))?\s*([Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)
_EXAMPLES = "18:00, 2030-11-25 08:00 or 2030-11-25T08:00:00+01:00"


def absolute(text: str, now: datetime | None) -> str:
    """Return the moment in ISO form, with its zone; it is that of `now` where the text names none.

    A time of day is the next one. `now` is None where nobody knows the time: then only a whole date with its
    zone is understood. Raises ValueError, which says what was expected.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a time such as {_EXAMPLES}, got {text!r}")
    date, hour, minute, second, zone = match.groups()
    if now is None and not (date and zone):
        raise ValueError(f"expected a date, a time and a zone, as in 2030-11-25T08:00:00+01:00, got {text!r}")
    today = "0001-01-01" if now is None else now.date().isoformat()
    try:
        at = datetime.fromisoformat(f"{date or today}T{int(hour):02}:{minute}:{second or '00'}{zone or ''}")
    except ValueError as error:
        raise ValueError(f"expected a time such as {_EXAMPLES}, got {text!r}: {error}") from None
    if now is None:
        return at.isoformat()
    at = at if zone else at.replace(tzinfo=now.tzinfo)
    if at > now:
        return at.isoformat()
    if date:
        raise ValueError(f"{at:%Y-%m-%d %H:%M} is over: it is {now:%Y-%m-%d %H:%M} now")
    return (at + timedelta(days=1)).isoformat()
