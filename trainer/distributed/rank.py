"""Rank: the numbers of a training process, its box, and its heartbeat. No torch."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from vastrun.contract import layout
from vastrun.contract.reports import HEARTBEAT_BYTES

Activity = Literal[
    "start", "data", "compile", "forward", "backward", "optimizer", "eval", "checkpoint", "done", "step"
]


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes that train together, by its numbers."""

    rank: int
    local_rank: int
    world_size: int
    box: Path
    local_world_size: int | None = None
    """Number of ranks on this machine; None: all."""
    micro_batch_cap: int | None = None
    """Maximum windows that this rank computes at once, since more did not fit before; None: no limit."""

    @classmethod
    def of_environment(cls) -> Self:
        """Read the rank from the variables of torchrun and of the supervisor. Raises KeyError, ValueError."""
        cap = os.environ.get("VASTRUN_MICRO_BATCH")
        return cls(
            rank=int(os.environ["RANK"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            local_world_size=int(os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"])),
            box=Path(os.environ["VASTRUN_BOX"]),
            micro_batch_cap=None if cap is None else int(cap),
        )

    @property
    def is_first(self) -> bool:
        """Tell whether this is rank 0, which prints and writes for all."""
        return self.rank == 0


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
    def of_this_rank(cls) -> Self:
        """Open the heartbeat of the rank in torchrun's RANK, in the box of VASTRUN_BOX. Raises OSError."""
        box = Path(os.environ.get("VASTRUN_BOX", "."))
        return cls(box / layout.HEARTBEATS / f"rank-{os.environ.get('RANK', '0')}")

    def beat(self, step: int, activity: Activity = "step") -> None:
        """Write that this rank is now in `activity` of `step`. Raises OSError."""
        self.step = self.first_step + step
        line = f"{self.step} {activity} {time.time():.3f} {self._pid}"
        os.pwrite(self._fd, f"{line:<{HEARTBEAT_BYTES - 1}}\n".encode(), 0)
