"""Logged error: find in a program's log the exception that it printed last.

Standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from vastrun.onstart.optional_files import read_end

_HEADER = "Traceback (most recent call last):"
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""Prefix that torch adds to each line of a traceback once a process group exists."""
_BARE_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt)(: .*)?$")

_WATCHDOG = (
    re.compile(r"Process group watchdog thread terminated with exception: (.+)"),
    re.compile(r"(Terminating the process after attempting to dump debug info, due to .+)"),
)
"""Messages of torch's NCCL threads before they abort the process: the watchdog prints its error, which may be
a CUDA error, too; the watchdog's monitor only prints that it terminates the process."""


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An uncaught exception."""

    exception: str
    """Type and message in one line."""
    traceback: str


def last_raised(log: Path) -> Raised | None:
    """Return the last exception in a program's log; of a chain, the exception that was raised last.

    None when there is none.
    """
    lines = _RANK_PREFIX.sub("", _end_of(log)).split("\n")
    headers = [number for number, line in enumerate(lines) if line == _HEADER]
    if not headers:
        bare = next((line for line in reversed(lines) if _BARE_ERROR.match(line)), None)
        return Raised(exception=bare, traceback=bare) if bare else None
    start = headers[-1]
    end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith((" ", "\t"))), None)
    if end is None:
        return None
    return Raised(exception=lines[end].rstrip(), traceback="\n".join(lines[start : end + 1]))


def count_tracebacks(log: Path) -> int:
    """Return how many tracebacks the end of a program's log has."""
    return _RANK_PREFIX.sub("", _end_of(log)).split("\n").count(_HEADER)


def last_abort(log: Path) -> Raised | None:
    """Return from a program's log why NCCL's watchdog aborted it; None when it did not."""
    text = _end_of(log)
    found = next((met for pattern in _WATCHDOG if (met := pattern.search(text))), None)
    return Raised(exception=found[1].strip(), traceback=found[0].strip()) if found else None


def _end_of(log: Path) -> str:
    return read_end(log, 1 << 16).decode("utf-8", errors="replace")
