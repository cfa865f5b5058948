"""Optional files: read files that may be missing, or may not be read. Standard library only."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path


def read_text(path: Path) -> str:
    """Return the text of a file; empty where it cannot be read."""
    with suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace")
    return ""


def read_end(path: Path, max_bytes: int) -> bytes:
    """Return the last bytes of a file; empty where it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - max_bytes))
        return file.read(max_bytes)
    return b""


def size_of(path: Path) -> int:
    """Return the bytes of a file, also behind a link; 0 if it is no file."""
    with suppress(OSError):
        return path.stat().st_size if path.is_file() else 0
    return 0


def number_in(path: Path, key: str | None = None) -> int | None:
    """Return the whole number in a file, or by that key in its JSON; None where there is none."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        found = json.loads(path.read_bytes())
        number = found if key is None else found[key]
        return number if isinstance(number, int) else None
    return None
