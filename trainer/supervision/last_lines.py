"""The last lines that a rank printed, after its last traceback or without one. Standard library."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from trainer.distributed.exit import Raised
from trainer.supervision.ranklogs import as_text

_MAX_LINES = 12
_MAX_CHARACTERS = 300
"""Maximum length of one line; the log has the whole line."""
_TAIL_BYTES = 1 << 14
_OF_RANK = re.compile(r"^\[rank\d+\]: ?")
"""Prefix that torch puts before a line once a process group exists."""

_FRAME = '  File "'
_MODULE_FRAME = ", in <module>"
_LOG_RECORD = re.compile(r"\b(WARNING|ERROR|CRITICAL|FATAL|EXCEPTION)\b")
"""A line of a log, which a caught exception's traceback follows."""
_AT_EXIT = re.compile(
    r"\s|wandb:|\[?[WI]\d{4} |.*(resource_tracker|Warning\b)|Exception ignored in|terminate called"
)
"""Lines that libraries print after the traceback of an exception that ends the program."""
_MAX_MESSAGE_LINES = 20
"""Maximum lines of an exception's message; after more the program went on."""


@dataclass(frozen=True)
class LinesAfter:
    """Lines that a rank printed after its last traceback."""

    text: str
    count: int
    """Number of all these lines."""
    is_reason: bool
    """True: the exception was caught, and the program ended later. False: it may be its message."""


def last_lines(log: Path) -> str | None:
    """Return the last lines of a log that are not empty, as a terminal would show them; None without any."""
    found: list[str] = []
    for line in reversed(_tail(log).split(b"\n")):
        text = _OF_RANK.sub("", next(iter(as_text(line)))).rstrip()
        if text:
            found.append(text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…")
        if len(found) == _MAX_LINES:
            break
    return "\n".join(reversed(found)) or None


def last_line(lines: str | None) -> str:
    """Return the last one of `last_lines`; empty where there are none."""
    return (lines or "").rpartition("\n")[2].strip()


def lines_after(log: Path, raised: Raised) -> LinesAfter | None:
    """Return what was printed after a traceback; None for nothing, or only what libraries print."""
    lines = [_OF_RANK.sub("", next(iter(as_text(line)))).rstrip() for line in _tail(log).split(b"\n")]
    at = next((number for number in range(len(lines) - 1, -1, -1) if lines[number] == raised.exception), None)
    if at is None:
        return None
    after = [line for line in lines[at + 1 :] if line and not _AT_EXIT.match(line)]
    if not after:
        return None
    header = at - raised.traceback.count("\n")
    before = next((lines[number] for number in range(header - 1, -1, -1) if lines[number]), "")
    # The stack of an exception that nobody caught begins in the program's module.
    was_caught = _FRAME in raised.traceback and _MODULE_FRAME not in raised.traceback
    was_logged = _LOG_RECORD.search(before) is not None
    shown = [line[:_MAX_CHARACTERS] for line in after]
    return LinesAfter(
        text="\n".join(shown[-_MAX_LINES:]),
        count=len(after),
        is_reason=was_caught or was_logged or len(after) > _MAX_MESSAGE_LINES,
    )


def _tail(log: Path) -> bytes:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return file.read(_TAIL_BYTES)
    return b""
