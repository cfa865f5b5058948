"""What a container runs on every start: the lease, as a text that any shell takes and Vast's field holds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from launcher.core.errors import ProviderError

LIMIT_BYTES = 4000
"""Vast's documents disagree about theirs; the lowest they name is 4,048 characters."""
BOX = "vastrun"
"""The box's folder, in the home that an SSH session begins in."""
_TEMPLATE = Path(__file__).with_name("onstart.sh")


def onstart_text(lease: str) -> str:
    """Return the script that writes the lease into the box and arms it; safe to repeat.

    Raises ProviderError when it is too long.
    """
    shebang, *lines = _TEMPLATE.read_text(encoding="utf-8").splitlines()
    text = f"{shebang}\n{_short(lines)}\n".replace("@LEASE@", _short(lease.splitlines()))
    if len(text.encode()) >= LIMIT_BYTES:
        raise ProviderError(f"the lease needs {len(text.encode())} bytes; Vast takes {LIMIT_BYTES}")
    return text


def _short(script: Iterable[str]) -> str:
    """The script without its comment lines and its indentation, which mean nothing to the shell."""
    lines = [line.strip() for line in script]
    return "\n".join(line for line in lines if line and not line.startswith("#"))
