"""Values as one types them: spans of time."""

from __future__ import annotations

import re

import click

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(value: str) -> float:
    """Read a span of time as seconds: `90`, `90s`, `10m`, `2h`, `1d`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value)
    if match is None:
        raise click.BadParameter(f"expected a time such as 90s, 10m or 2h, got {value!r}")
    return float(match[1]) * _SECONDS[match[2] or "s"]
