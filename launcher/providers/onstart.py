"""Start script of a container: the lease, packed to fit Vast's field, under any shell."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable
from pathlib import Path

from vastrun.launcher.core.errors import ProviderError

LIMIT_BYTES = 4000
"""Vast's documents disagree about theirs; the lowest they name is 4,048 characters."""
BOX = "vastrun"
"""The box's folder, in the home that an SSH session begins in."""
_TEMPLATE = Path(__file__).with_name("onstart.sh")
_PACKED = "@PACKED@"


def onstart_text(lease: str) -> str:
    """Return the script that unpacks the lease into the box and arms it; safe to repeat.

    The same lease gives the same text. Raises ProviderError when it is too long.
    """
    # Without a time, so that the text depends on the lease alone.
    packed = gzip.compress(f"{_short(lease.splitlines())}\n".encode(), mtime=0)
    text = _template().replace(_PACKED, base64.b64encode(packed).decode())
    if len(text.encode()) >= LIMIT_BYTES:
        raise ProviderError(f"the start script needs {len(text.encode())} bytes; Vast takes {LIMIT_BYTES}")
    return text


def readable_text(lease: str) -> str:
    """Return what `onstart_text` packs, for people: the script, and the lease below it with its comments."""
    size = len(onstart_text(lease).encode())
    script = _template().replace(_PACKED, "PACKED_LEASE")
    return (
        f"# What the machine runs at each start, in {size} bytes. PACKED_LEASE stands for the text below,\n"
        "# which is sent without its comments and its indentation: gzip, then base64.\n\n"
        f"{script}\n# lease.sh\n\n{lease}"
    )


def _template() -> str:
    shebang, *lines = _TEMPLATE.read_text(encoding="utf-8").splitlines()
    return f"{shebang}\n{_short(lines)}\n"


def _short(script: Iterable[str]) -> str:
    """The script without its comment lines and its indentation, which mean nothing to the shell."""
    lines = [line.strip() for line in script]
    return "\n".join(line for line in lines if line and not line.startswith("#"))
