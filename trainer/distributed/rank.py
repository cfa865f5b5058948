"""Rank: the numbers of a training process, and its box. No torch."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


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
