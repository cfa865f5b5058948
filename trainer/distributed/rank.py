"""Rank: the numbers of a training process, and its box. No torch."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes that train together, by its numbers."""

    rank: int
    local_rank: int
    world_size: int
    box: Path
    local_world_size: int | None = None
    """Number of ranks on this machine; None: all."""
    node: int | None = None
    """Number of this machine where each machine trains independently; None: all train together."""
    nodes: int = 1
    """Number of machines that train independently."""
    micro_batch_cap: int | None = None
    """Maximum windows that this rank computes at once, since more did not fit before; None: no limit."""

    @classmethod
    def of_environment(cls) -> Rank:
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

    @property
    def number(self) -> int:
        """Return the number of this rank among the ranks of all nodes."""
        return (self.node or 0) * self.world_size + self.rank

    @property
    def of(self) -> int:
        """Return the number of ranks on all nodes."""
        return self.nodes * self.world_size

    def by_node(self) -> Rank:
        """Return this rank renumbered among those of its node, which train independently."""
        here = self.local_world_size or self.world_size
        return replace(
            self,
            rank=self.local_rank,
            world_size=here,
            node=self.rank // here,
            nodes=self.world_size // here,
        )
