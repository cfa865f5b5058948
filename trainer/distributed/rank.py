"""Rank: which of the training processes this is, its box and its job. No torch."""

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
    """Seconds for which a rank may make no progress."""
    start_s: float
    """The same for its start."""
    train: TrainConfig | None = None
    code: dict[str, Any] | None = None
    """Commit of the user's code, and whether it was changed."""
    continues: tuple[str, ...] = ()
    """Ids of the runs that this one continues."""
    batch: JobBatch | None = None
    """None: the run is of no batch."""

    @property
    def longest_stage_s(self) -> float:
        """Return the seconds for which one rank may keep the others waiting, in the slowest activity."""
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
    """The ranks of this machine; None: all."""
    node: int | None = None
    """The number of this machine, where the ranks of each train by themselves; None: all train together."""
    nodes: int = 1
    """How many machines train by themselves."""
    micro_batch_cap: int | None = None
    """The most windows that this rank may compute at once, since more did not fit before; None: no limit."""

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
        """Tell whether this is rank 0, the one that prints and writes for all."""
        return self.rank == 0

    @property
    def number(self) -> int:
        """Return which of all ranks this is, on whichever node."""
        return (self.node or 0) * self.world_size + self.rank

    @property
    def of(self) -> int:
        """Return how many ranks there are on all nodes."""
        return self.nodes * self.world_size

    def by_node(self) -> Rank:
        """Return this rank among those of its node, which train by themselves."""
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
