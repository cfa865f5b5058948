"""A rank's heartbeat: one fixed line in one file, overwritten in place. Standard library only.

A program of the user's own writes the same by `vastrun.beat`.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainer.contract import layout

Activity = Literal[
    "start", "data", "compile", "forward", "backward", "optimizer", "eval", "checkpoint", "done", "step"
]

_WIDTH = 64


class Heartbeat:
    """Writes the heartbeat of one rank. A beat costs one `pwrite`, no lock, no sync."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        self._pid = os.getpid()
        self.step = 0

    @classmethod
    def of_this_rank(cls) -> Heartbeat:
        """The heartbeat of the rank that torchrun's RANK names, in the box of VASTRUN_BOX."""
        box = Path(os.environ.get("VASTRUN_BOX", "."))
        return cls(box / layout.HEARTBEATS / f"rank-{os.environ.get('RANK', '0')}")

    def beat(self, step: int, activity: Activity = "step") -> None:
        """This rank moved: it is in `activity` of `step` now."""
        self.step = step
        line = f"{step} {activity} {time.time():.3f} {self._pid}"
        os.pwrite(self._fd, f"{line:<{_WIDTH - 1}}\n".encode(), 0)


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A heartbeat as read."""

    step: int
    activity: str
    at: float
    """Epoch seconds."""
    pid: int


def read_beat(path: Path) -> Beat | None:
    """The last beat in the file; None when there is none yet."""
    try:
        step, activity, at, pid = path.read_text(encoding="ascii").split()
        return Beat(step=int(step), activity=activity, at=float(at), pid=int(pid))
    except (OSError, ValueError):
        return None
