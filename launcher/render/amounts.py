"""Amounts: durations, dollars and moments as people read them."""

from __future__ import annotations

import time

from launcher.estimates import usd as usd


def duration(seconds: float) -> str:
    """`4.2s`, `1m 32s`, `2h 05m`, `3d 04h`."""
    seconds = max(0.0, seconds)
    if seconds < 59.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m {rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}h {minutes:02}m"
    days, hours = divmod(hours, 24)
    return f"{days}d {hours:02}h"


def moment(at: float) -> str:
    """Local time, to the second."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
