"""The last lines that a rank printed, of a program that fails without an exception. Standard library."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from trainer.supervision.ranklogs import as_text

_MAX_LINES = 12
_MAX_CHARACTERS = 300
"""Maximum length of one line; the log has the whole line."""
_TAIL_BYTES = 1 << 14
_OF_RANK = re.compile(r"^\[rank\d+\]: ?")
"""Prefix that torch puts before a line once a process group exists."""


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


def _tail(log: Path) -> bytes:
    with suppress(OSError), log.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
        return file.read(_TAIL_BYTES)
    return b""
