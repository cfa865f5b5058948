"""Columns of Vast's rows: each value is parsed and bounded on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, TypeVar

from vastrun.launcher.gate import caps

ROW_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
_MIN_DRIVER = 100.0
"""Smallest version of a driver with CUDA 12 or newer, and above any version of CUDA."""

_T = TypeVar("_T")


class ColumnReader:
    """Reader of a row's columns; an invalid value does not affect the others."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self.unreadable: list[str] = []

    def read(self, column: str, kind: Callable[[Any], _T]) -> _T:
        """Return the parsed value; `kind(None)` when it is invalid."""
        try:
            return kind(self._row.get(column))
        except ROW_ERRORS:
            # One odd value must not hide a machine that costs money: only this column counts as missing.
            self.unreadable.append(column)
            return kind(None)


def number(value: Any) -> float:
    """Read a number; 0 where there is none. Raises ValueError for one beyond any that Vast has."""
    found = float(value or 0.0)
    # `not <=` instead of `>`: NaN, which JSON of Python may hold, compares false and is refused, too.
    if not abs(found) <= caps.VAST_NUMBER:
        raise ValueError(f"{found} is out of range")
    return found


def billed_gb(kilobytes: Any) -> float:
    """Read a counter of traffic, in kilobytes (measured 2026-09), as GB; 0 where there is none.

    Raises ValueError for a negative one.
    """
    found = number(kilobytes)
    if found < 0:
        raise ValueError(f"{found} is negative")
    return found / 1024**2


def id_text(value: Any) -> str:
    """Read a number that names something; empty where there is none. Raises ValueError."""
    return "" if value is None else str(int(number(value)))


def seconds(minutes: Any) -> float | None:
    """Return the longest time that a rounded number of minutes may stand for.

    None where there is none, or a negative one: both were seen (2026-08), and say nothing.
    """
    if minutes is None or (found := number(minutes)) < 0:
        return None
    # A bill is compared with this uptime: the upper end of the rounding never charges a host with too little.
    digits = str(minutes).partition(".")[2]
    return (found + 0.5 * 10.0 ** -len(digits)) * 60


def price(value: Any) -> float:
    """Read a price. Raises ValueError for 0: a free offer would be the first to be rented."""
    usd = number(value)
    if usd <= 0:
        raise ValueError("an offer without a price")
    return usd


def text(value: Any) -> str:
    """Read a text, or its beginning if it is long; empty where there is none."""
    return str(value or "")[: caps.VAST_CHARACTERS].strip()


def site_address(value: Any) -> str:
    """Read the public IP address of a site; empty where there is none. Raises ValueError for another text."""
    found = ip_address(text(value)) if text(value) else None
    # A private address stands for thousands of sites. That of this computer is an emulated market's.
    return str(found) if found is not None and (found.is_global or found.is_loopback) else ""


def cuda(value: Any) -> float:
    """Read a CUDA version; 0 where there is none, or where it is a driver's: 580.2 was seen (2026-08)."""
    found = number(value)
    return found if 0 < found < _MIN_DRIVER else 0.0


def flag(value: Any) -> bool:
    """Read true or false; false where there is neither. Raises ValueError."""
    # A text such as "false" would be true to Python.
    if value not in (True, False, None):
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)


def gpu_name(value: Any) -> str:
    """Read a GPU's name in Vast's usual spelling, with spaces."""
    # Search accepts both spellings and rows have either; learned speeds would be split between the two.
    return text(value).replace("_", " ")


def cpu_architecture(value: Any) -> str:
    """Read a CPU's architecture as images name it; that of nearly all machines where there is none."""
    found = text(value).lower() or "amd64"
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(found, found)


def ssh_port(ports: Any) -> int:
    """Return the port of the host that leads to the container's sshd; 0 while there is none.

    Vast's list has an object, its documentation of a single instance a list of numbers, without what they
    lead to. Raises ValueError for anything else.
    """
    if not isinstance(ports, Mapping | list | None):
        raise ValueError("neither an object nor a list of ports")
    mapped = ports.get("22/tcp") if isinstance(ports, Mapping) else None
    found = [place.get("HostPort") for place in mapped or () if isinstance(place, Mapping)]
    return next((port(value) for value in found if value), 0)


def port(value: Any) -> int:
    """Read a TCP port; 0 where there is none. Raises ValueError."""
    found = int(number(value))
    if not 0 <= found <= 65535:
        raise ValueError(f"{found} is not a port")
    return found


def whole(value: Any) -> int:
    """Read a whole number; 0 where there is none. Raises ValueError."""
    return int(number(value))


def whole_or_unknown(value: Any) -> int | None:
    """Read a whole number; None where there is none. Raises ValueError."""
    return None if value is None else whole(value)


def end_of_text(value: Any) -> str:
    """Read the end of a text; empty where there is none."""
    return str(value or "")[-caps.VAST_CHARACTERS :].strip()
