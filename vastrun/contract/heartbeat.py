"""Heartbeat: a file with one line for each rank, overwritten in place. Standard library only.

Ranks of the trainer write it, and a user's program with `vastrun.beat`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.records import read_small

HEARTBEAT_BYTES = 64
"""Bytes of a heartbeat, padded: a shorter one fully overwrites a longer one."""
_MAX_READ_BYTES = 1024
"""Maximum bytes to read, since a user's program may write the file."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A heartbeat that was read from its file."""

    step: int
    activity: str
    at: float
    """Epoch seconds."""
    pid: int


def read_beat(path: Path) -> Beat | None:
    """Read the last beat; None when there is none yet, or the file is malformed."""
    try:
        step, activity, at, pid = read_small(path, _MAX_READ_BYTES).decode("ascii").split()
        return Beat(step=int(step), activity=activity, at=float(at), pid=int(pid))
    except (OSError, ValueError):
        return None
