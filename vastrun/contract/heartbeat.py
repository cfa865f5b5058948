"""Heartbeat: a file with one line for each rank, overwritten in place. Standard library only.

A user's program writes the same line with `vastrun.beat`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vastrun.contract import layout
from vastrun.contract.records import read_small

Activity = Literal[
    "start", "data", "compile", "forward", "backward", "optimizer", "eval", "checkpoint", "done", "step"
]

_HEARTBEAT_BYTES = 64
"""Bytes of a heartbeat, padded: a shorter one fully overwrites a longer one."""
_MAX_READ_BYTES = 1024
"""Maximum bytes to read, since a user's program may write the file."""


class Heartbeat:
    """Writes the heartbeat of one rank. A beat costs one `pwrite`, without lock or sync."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        self._pid = os.getpid()
        self.first_step = 0
        """Steps of the run before the stage whose steps are counted."""
        self.step = 0
        """Last step of the run."""

    @classmethod
    def of_this_rank(cls) -> Heartbeat:
        """Open the heartbeat of the rank in torchrun's RANK, in the box of VASTRUN_BOX. Raises OSError."""
        box = Path(os.environ.get("VASTRUN_BOX", "."))
        return cls(box / layout.HEARTBEATS / f"rank-{os.environ.get('RANK', '0')}")

    def beat(self, step: int, activity: Activity = "step") -> None:
        """Write that this rank is now in `activity` of `step`. Raises OSError."""
        self.step = self.first_step + step
        line = f"{self.step} {activity} {time.time():.3f} {self._pid}"
        os.pwrite(self._fd, f"{line:<{_HEARTBEAT_BYTES - 1}}\n".encode(), 0)


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
