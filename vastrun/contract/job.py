"""Job: the part of `job.json` that the supervisor needs. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vastrun.contract import layout
from vastrun.contract.records import RecordError, read_json

USUAL_RESTARTS: Mapping[str, int] = {
    "out_of_memory": 10,
    "signal": 3,
    "communication": 3,
    "hang": 2,
    "host": 3,
}
"""Default of `restarts` of a training: how often its ranks are started again on this machine, by cause."""

_LONGEST_TAG = 64
LEFT_BEHIND = "!"
"""Prefix of a pattern of `outputs` for files that are left on the machine on purpose."""
NAMES_OUTPUTS = ("$VASTRUN_OUTPUTS/", "${VASTRUN_OUTPUTS}/")
"""Prefix of a pattern for the folder from which everything is downloaded."""


@dataclass(frozen=True, kw_only=True)
class JobActivityLimits:
    """Seconds without progress that a rank may have in slow activities; None: as many as at the start."""

    compile_s: float | None = None
    eval_s: float | None = None
    checkpoint_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class JobDiloco:
    """How nodes train apart."""

    least_nodes: int | None = None
    """The others go on without a node that left while so many are there; None: none may leave."""


@dataclass(frozen=True, kw_only=True)
class JobWandb:
    """Whether the ranks report to W&B."""

    mode: str = "auto"
    """`off`: they do not."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The part of the `train:` section that matters outside the ranks."""

    steps: int
    batch: int = 1
    threads: int = 1
    out_of_memory: str = "restart"
    deterministic: bool = False
    limits: JobActivityLimits = field(default_factory=JobActivityLimits)
    strategy: str = "auto"
    diloco: JobDiloco = field(default_factory=JobDiloco)
    wandb: JobWandb = field(default_factory=JobWandb)


@dataclass(frozen=True, kw_only=True)
class JobSuccess:
    """The conditions that prove the success of a user's own command; None: not a condition."""

    files: tuple[str, ...] = ()
    log: str | None = None
    steps: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobCheckpoints:
    """The checkpoints of a user's own program."""

    files: str
    """A glob relative to the working folder, or in `$VASTRUN_OUTPUTS/`; each match is a checkpoint."""
    keep: int = 2
    """Number of the newest checkpoints that are kept."""
    every_s: float = 60.0
    """Least seconds between two that are taken while the program runs."""

    def folder(self, box: Path) -> Path:
        """Return the folder that the pattern begins in, resolved."""
        named = self.files.startswith(NAMES_OUTPUTS)
        return (box / layout.OUTPUTS if named else working_folder(box)).resolve()

    @property
    def pattern(self) -> str:
        """Return the glob relative to that folder."""
        prefixes = (name for name in NAMES_OUTPUTS if self.files.startswith(name))
        return self.files.removeprefix(next(prefixes, ""))


@dataclass(frozen=True, kw_only=True)
class JobBatch:
    """The batch that the run is part of."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Of its point, by key: what tells this run from the others."""

    @property
    def tag(self) -> str:
        """Return its name as a tag of W&B's, which has at most 64 characters, in a list with commas."""
        return self.name.replace(",", " ")[:_LONGEST_TAG]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job of this box. It has either `train` or `command`."""

    run_id: str
    ranks: int
    """Ranks on this node."""
    train: Training | None = None
    command: tuple[str, ...] | None = None
    stall_s: float
    start_s: float
    env: Mapping[str, str] = field(default_factory=dict)
    success: JobSuccess | None = None
    outputs: tuple[str, ...] = ()
    """Globs of what is downloaded, and with `!` before of what is left behind on purpose."""
    outputs_gb: float = 5.0
    """Most GB of what a command wrote that are downloaded where `outputs` names no files."""
    push: str | None = None
    """The URL that finished checkpoints are pushed to; None: they are not pushed."""
    pushed: tuple[str, ...] = ()
    """URLs to which the runs that this one continues pushed, the last run first; nothing need be there."""
    start_from: str | None = None
    """The URL of checkpoints to start from, at which there must be one; None: none is needed."""
    nodes: int = 1
    """How many machines train together, each with as many ranks."""
    gpus: int = 0
    restarts: Mapping[str, int] | None = None
    """How often to start the ranks again here, by cause; None: `USUAL_RESTARTS`, of a command never."""
    name: str = ""
    batch: JobBatch | None = None
    """None: the run is of no batch."""
    checkpoints: JobCheckpoints | None = None
    """Checkpoints of the command; None: it has none."""

    @classmethod
    def read(cls, box: Path) -> Job:
        """Read `job.json` in the folder of the box. Raises OSError; ValueError when it is not a job."""
        try:
            job = read_json(cls, (box / layout.JOB).read_text(encoding="utf-8"))
        except RecordError as error:
            raise ValueError(f"{layout.JOB} is not a job: {error}") from error
        assert isinstance(job, cls)
        return job

    @property
    def restart_limits(self) -> Mapping[str, int]:
        """Return how often to start the ranks again, by cause; 0 of a cause that is not there.

        A user's own command is not started again unless asked for: it may not know how to continue.
        """
        if self.restarts is not None:
            return self.restarts
        return USUAL_RESTARTS if self.train is not None else {}

    @property
    def named_outputs(self) -> tuple[str, ...]:
        """Return the globs of files to download; none: everything that the program wrote."""
        return tuple(pattern for pattern in self.outputs if not pattern.startswith(LEFT_BEHIND))

    @property
    def left_behind(self) -> tuple[str, ...]:
        """Return the globs of files that are left on the machine on purpose."""
        return tuple(pattern[1:] for pattern in self.outputs if pattern.startswith(LEFT_BEHIND))

    @property
    def trains_apart(self) -> bool:
        """Return whether the ranks of each node train by themselves, and the nodes meet now and then."""
        return self.nodes > 1 and self.train is not None and self.train.strategy == "diloco"

    @property
    def least_nodes(self) -> int:
        """Return how many nodes have to be there for the others to go on without those that left."""
        train = self.train
        return (
            self.nodes if train is None else least_nodes(self.nodes, train.strategy, train.diloco.least_nodes)
        )

    @property
    def threads(self) -> int | None:
        """Return the CPU threads that a rank may use; None for a command: its ranks share the CPUs."""
        return self.train.threads if self.train else None

    @property
    def program(self) -> tuple[str, ...]:
        """Return the command line of a rank."""
        # -P: the working folder is the user's code, and a folder `trainer` in it must not be taken for ours.
        return self.command or (sys.executable, "-P", "-u", "-m", "vastrun.trainer.train")


def working_folder(box: Path) -> Path:
    """Return the folder in which the ranks run: the user's code where there is any, else the box."""
    code = box / layout.CODE
    return code if code.is_dir() else box


def matching_files(box: Path, pattern: str) -> list[Path]:
    """Return the files that match a glob relative to the ranks' working folder, sorted."""
    return sorted(path for path in working_folder(box).glob(pattern.lstrip("/")) if path.is_file())


def least_nodes(nodes: int, strategy: str, least: int | None) -> int:
    """Return how many of the nodes a training needs: all, unless they train apart and `least` is less."""
    return min(nodes, least or nodes) if strategy == "diloco" else nodes
