"""A search in a large log from its end, without reading all of its lines."""

from __future__ import annotations

import mmap
from contextlib import suppress
from pathlib import Path

from vastrun.launcher.outputs.folder import CHUNK

LARGE_BYTES = 32 << 20
"""From here on, reading all lines takes more than a second."""


def text_from_last(log: Path, mark: str) -> str:
    """Return the log from the last line with `mark` on, a chunk at most; empty where no line has it."""
    with suppress(OSError, ValueError), log.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.rfind(mark.encode())
            begin = content.rfind(b"\n", 0, at) + 1
        if at >= 0:
            file.seek(begin)
            return file.read(CHUNK).decode("utf-8", "replace")
    return ""


def is_large(log: Path) -> bool:
    """Tell whether reading all lines of the log takes long."""
    with suppress(OSError):
        return log.stat().st_size >= LARGE_BYTES
    return False
