"""Job: what `job.json` says, as the supervisor needs it. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trainer.contract import layout
from trainer.contract.records import RecordError, read_json

USUAL_RESTARTS: Mapping[str, int] = {
    "out_of_memory": 10,
    "signal": 3,
    "communication": 3,
    "hang": 2,
    "host": 3,
}


@dataclass(frozen=True, kw_only=True)
class JobActivityLimits:
    """How long a rank may stand still in the stages that are slow; None: as long as at the start."""

    compile_s: float | None = None
    eval_s: float | None = None
    checkpoint_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Training:
    """What of the `train:` section matters outside the ranks."""

    steps: int
    batch: int = 1
    threads: int = 1
    out_of_memory: str = "restart"
    limits: JobActivityLimits = field(default_factory=JobActivityLimits)


@dataclass(frozen=True, kw_only=True)
class JobSuccess:
    """What proves that a user's own command worked."""

    files: tuple[str, ...] = ()
    log: str | None = None
    steps: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job on this box."""

    run_id: str
    ranks: int
    """On this node."""
    train: Training | None = None
    command: tuple[str, ...] | None = None
    stall_s: float
    start_s: float
    env: Mapping[str, str] = field(default_factory=dict)
    success: JobSuccess | None = None
    outputs: tuple[str, ...] = ()
    nccl_debug: str = "WARN"
    push: str | None = None
    """The URL that finished checkpoints are pushed to."""
    pushed: tuple[str, ...] = ()
    """Where the runs that this one continues pushed theirs, the nearest first; there may be none."""
    start_from: str | None = None
    """The URL of the checkpoints to start from; there must be one."""
    nodes: int = 1
    """How many machines train together, each with as many ranks."""
    gpus: int = 0
    restarts: Mapping[str, int] | None = None
    """How often to start the ranks again here, by cause; None: `USUAL_RESTARTS` for a training."""

    @classmethod
    def read(cls, box: Path) -> Job:
        """The job of this box. Raises OSError, ValueError."""
        try:
            job = read_json(cls, (box / layout.JOB).read_text(encoding="utf-8"))
        except RecordError as error:
            raise ValueError(f"{layout.JOB} is not a job: {error}") from error
        assert isinstance(job, cls)
        return job

    @property
    def restart_limits(self) -> Mapping[str, int]:
        """How often to start the ranks again, by cause. A user's own command may not know how to go on."""
        if self.restarts is not None:
            return self.restarts
        return USUAL_RESTARTS if self.train is not None else {}

    @property
    def threads(self) -> int | None:
        """CPU threads of a rank; None: nobody said."""
        return self.train.threads if self.train else None

    @property
    def program(self) -> tuple[str, ...]:
        """What a rank runs. -P: a folder `trainer` in the user's code is never taken for ours."""
        return self.command or (sys.executable, "-P", "-u", "-m", "trainer.train")


def working_folder(box: Path) -> Path:
    """Where the ranks run: the user's code when there is any."""
    code = box / layout.CODE
    return code if code.is_dir() else box


def matching_files(box: Path, pattern: str) -> list[Path]:
    """Files that match a glob which is relative to the ranks' working folder."""
    return sorted(path for path in working_folder(box).glob(pattern.lstrip("/")) if path.is_file())
