"""Rank: the numbers of a training process, its box and its job. No torch."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.contract.config import TrainConfig
from vastrun.contract.job import JobBatch
from vastrun.contract.records import read_json


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """The part of `job.json` that the onboard trainer needs."""

    run_id: str
    name: str
    gpus: int
    stall_s: float
    """Maximum seconds of a rank without progress."""
    start_s: float
    """Maximum seconds without progress during its start."""
    train: TrainConfig | None = None
    code: dict[str, Any] | None = None
    """Commit of the user's code, and a flag for uncommitted changes."""
    continues: tuple[str, ...] = ()
    """Ids of the runs that this one continues."""
    batch: JobBatch | None = None
    """The batch of the run; None: it has no batch."""

    @property
    def max_activity_s(self) -> float:
        """Return the maximum seconds for which one rank may delay the others, in the slowest activity."""
        own = asdict(self.train.limits).values() if self.train else ()
        return max(self.stall_s, self.start_s, *(seconds for seconds in own if seconds is not None))


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


def read_job(box: Path) -> TrainJob:
    """Read the job in the folder of the box. Raises OSError; RecordError, a ValueError."""
    job = read_json(TrainJob, (box / layout.JOB).read_text(encoding="utf-8"))
    assert isinstance(job, TrainJob)
    return job
