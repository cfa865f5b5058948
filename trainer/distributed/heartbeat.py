"""Heartbeat of a rank: what it does now, in one line that is overwritten in place. No torch."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Literal

from vastrun.contract import layout
from vastrun.contract.heartbeat import HEARTBEAT_BYTES

Activity = Literal[
    "start", "data", "compile", "forward", "backward", "optimizer", "eval", "checkpoint", "done", "step"
]


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
        os.pwrite(self._fd, f"{line:<{HEARTBEAT_BYTES - 1}}\n".encode(), 0)
