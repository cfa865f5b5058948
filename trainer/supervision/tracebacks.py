"""Tracebacks: what a program's log says about the exception that ended it. Standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.contract.reasons import Reason
from trainer.distributed.devices import FAILED_DEVICE, NO_MEMORY

_TAIL = 1 << 16
_HEADER = "Traceback (most recent call last):"
_OF_RANK = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""What torch puts before each line of a traceback once a process group exists."""
_BARE_ERROR = re.compile(r"^(\w+\.)*\w*(Error|Exception|Interrupt)(: .*)?$")

_REASONS: Mapping[Reason, re.Pattern[str]] = {
    "device": FAILED_DEVICE,
    "oom": NO_MEMORY,
    "disk": re.compile(r"\[Errno 28\]|No space left on device|Disk quota exceeded"),
    "communication": re.compile(r"\bDist(Backend|Network|Store)Error\b|\bgloo\b|\bNCCL\b|\bnccl[A-Z]\w+"),
}


@dataclass(frozen=True, kw_only=True)
class Raised:
    """An exception that nobody caught."""

    exception: str
    """Type and message, one line."""
    traceback: str


def last_raised(log: Path) -> Raised | None:
    """Return the last exception in a program's log; None when there is none."""
    if not log.exists():
        return None
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL))
        return parse_raised(file.read().decode("utf-8", errors="replace"))


def parse_raised(text: str) -> Raised | None:
    """Return the last exception in a text: of a chain, the one that was raised last."""
    lines = _OF_RANK.sub("", text).split("\n")
    headers = [number for number, line in enumerate(lines) if line == _HEADER]
    if not headers:
        bare = next((line for line in reversed(lines) if _BARE_ERROR.match(line)), None)
        return Raised(exception=bare, traceback=bare) if bare else None
    start = headers[-1]
    end = next((n for n in range(start + 1, len(lines)) if not lines[n].startswith((" ", "\t"))), None)
    if end is None:
        return None
    return Raised(exception=lines[end], traceback="\n".join(lines[start : end + 1]))


def reason_of(exception: str) -> Reason:
    """Return the class of an exception by its type and message."""
    return next((reason for reason, pattern in _REASONS.items() if pattern.search(exception)), "error")
