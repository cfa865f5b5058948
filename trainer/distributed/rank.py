"""Who this process is: its rank, its box and its job. No torch."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.contract import layout
from trainer.contract.config import TrainConfig
from trainer.contract.records import read_json


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """What the onboard trainer needs to know of `job.json`."""

    run_id: str
    name: str
    gpus: int
    stall_s: float
    start_s: float
    train: TrainConfig | None = None
    code: dict[str, Any] | None = None
    """Commit of the user's code, and whether it was changed."""
    continues: tuple[str, ...] = ()
    """The runs before this one."""

    @property
    def longest_stage_s(self) -> float:
        """How long one rank may keep the others waiting, in the slowest of all stages."""
        own = asdict(self.train.limits).values() if self.train else ()
        return max(self.stall_s, self.start_s, *(seconds for seconds in own if seconds is not None))


@dataclass(frozen=True, kw_only=True)
class Rank:
    """One of the processes that train together."""

    rank: int
    local_rank: int
    world_size: int
    box: Path
    micro_batch_cap: int | None = None
    """The most windows that this rank may compute at once: more did not fit before."""

    @classmethod
    def of_environment(cls) -> Rank:
        """What torchrun's variables and those of the supervisor say."""
        cap = os.environ.get("VASTRUN_MICRO_BATCH")
        return cls(
            rank=int(os.environ["RANK"]),
            local_rank=int(os.environ["LOCAL_RANK"]),
            world_size=int(os.environ["WORLD_SIZE"]),
            box=Path(os.environ["VASTRUN_BOX"]),
            micro_batch_cap=None if cap is None else int(cap),
        )

    @property
    def is_first(self) -> bool:
        """Rank 0: the one that writes."""
        return self.rank == 0


def read_job(box: Path) -> TrainJob:
    """The job of the box."""
    job = read_json(TrainJob, (box / layout.JOB).read_text(encoding="utf-8"))
    assert isinstance(job, TrainJob)
    return job
