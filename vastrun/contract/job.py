"""Job: the part of `job.json` that supervisor and ranks need. Standard library only."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from vastrun.contract import layout
from vastrun.contract.data_files import JobDataFile
from vastrun.contract.program import ProgramSpec
from vastrun.contract.records import RecordError, read_json

EXCLUDE_PREFIX = "!"
"""Prefix of a pattern of `outputs` for files that must not be downloaded."""
OUTPUTS_PREFIXES = ("$VASTRUN_OUTPUTS/", "${VASTRUN_OUTPUTS}/")
"""Prefixes of a pattern in the folder from which every file is downloaded."""


@dataclass(frozen=True, kw_only=True)
class JobSuccess:
    """The conditions that prove the success of a user's command; None: not a condition."""

    files: tuple[str, ...] = ()
    log: str | None = None
    steps: int | None = None
    exit_code: int | None = None


@dataclass(frozen=True, kw_only=True)
class JobCheckpoints:
    """The snapshots of a user's program, and which of its files are checkpoints."""

    files: str | None = None
    """A glob relative to the working folder, or in `$VASTRUN_OUTPUTS/`; each match is a checkpoint."""
    keep: int = 2
    """Number of the newest matches to keep."""
    every_s: float = 60.0
    """Minimum seconds between two snapshots while the program runs."""
    max_gb: float | None = None
    """Maximum GB of a snapshot; None: `outputs_gb` where no files are named, else no limit."""

    def folder(self, box: Path) -> Path:
        """Return the folder in which the pattern begins, resolved."""
        in_outputs = (self.files or "").startswith(OUTPUTS_PREFIXES)
        return (box / layout.OUTPUTS if in_outputs else working_folder(box)).resolve()

    @property
    def pattern(self) -> str:
        """Return the glob relative to that folder."""
        files = self.files or ""
        return files.removeprefix(next((name for name in OUTPUTS_PREFIXES if files.startswith(name)), ""))


@dataclass(frozen=True, kw_only=True)
class JobBatch:
    """The batch that the run is part of."""

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """The values of the run's point, by key."""

    @property
    def tag(self) -> str:
        """Return its name as a W&B tag: at most 64 characters, without commas, which separate tags."""
        return self.name.replace(",", " ")[:64]


@dataclass(frozen=True, kw_only=True)
class Job:
    """The job of this box."""

    run_id: str
    ranks: int
    """Ranks on this node."""
    program: ProgramSpec
    stall_s: float
    """Maximum seconds of a rank without progress."""
    start_s: float
    """Maximum seconds without progress during its start."""
    env: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    """Shell commands that are run in the code folder before the program starts."""
    success: JobSuccess | None = None
    outputs: tuple[str, ...] = ()
    """Globs of files to download; with a leading `!`, of files that must not be downloaded."""
    outputs_gb: float = 5.0
    """Maximum GB that are downloaded of a command's files where `outputs` names no files."""
    push: str | None = None
    """URL to which finished checkpoints are pushed; None: they are not pushed."""
    pushed: tuple[str, ...] = ()
    """URLs to which the continued runs pushed checkpoints, the last run first; they may be empty."""
    continues: tuple[str, ...] = ()
    """Ids of the runs that this one continues, the nearest first; with `start_from` its last part, too."""
    start_from: str | None = None
    """URL of the checkpoints to start from, which must have one; None: start without a checkpoint."""
    nodes: int = 1
    """Number of machines that train together, each with the same number of ranks."""
    gpus: int = 0
    restarts: Mapping[str, int] | None = None
    """Maximum restarts of the ranks here, by cause; None: those of its program."""
    name: str = ""
    batch: JobBatch | None = None
    """The batch of the run; None: it has no batch."""
    checkpoints: JobCheckpoints | None = None
    """Snapshots of the command; None: none are taken."""
    data: tuple[JobDataFile, ...] = ()
    """Files to download before the ranks start."""
    code: Mapping[str, Any] | None = None
    """Digest, commit, branch and remote of the user's code, and a flag for uncommitted changes."""

    @classmethod
    def read(cls, box: Path) -> Job:
        """Read `job.json` in the folder of the box. Raises OSError; ValueError when it is not a job."""
        try:
            return read_json(cls, (box / layout.JOB).read_text(encoding="utf-8"))
        except RecordError as error:
            raise ValueError(f"{layout.JOB} is not a job: {error}") from error

    @property
    def max_activity_s(self) -> float:
        """Return the maximum seconds for which one rank may delay the others, in the slowest activity."""
        return max(self.stall_s, self.start_s, *self.program.activity_timeouts_s.values())

    @property
    def named_outputs(self) -> tuple[str, ...]:
        """Return the globs of files to download; empty: all files that the program wrote."""
        return tuple(pattern for pattern in self.outputs if not pattern.startswith(EXCLUDE_PREFIX))

    @property
    def rank_command(self) -> tuple[str, ...]:
        """Return the command line of a rank."""
        # -P: the working folder is the user's code, and a folder `vastrun` in it must not hide this package.
        return self.program.argv or (sys.executable, "-P", "-u", "-m", self.program.module)


def working_folder(box: Path) -> Path:
    """Return the folder in which the ranks run: the user's code if there is any, else the box."""
    code = box / layout.CODE
    return code if code.is_dir() else box


def matching_files(box: Path, pattern: str) -> list[Path]:
    """Return the files that match a glob relative to the ranks' working folder, sorted."""
    return sorted(path for path in matching_paths(working_folder(box), pattern) if path.is_file())


def matching_paths(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield what matches a glob relative to a folder; nothing for a glob that pathlib refuses.

    The launcher refuses such globs, but a job that was written without it must not fail by one after its
    training.
    """
    relative = pattern.lstrip("/")
    if PurePosixPath(relative).parts:  # not of `.`, with which pathlib raises errors of several types
        with suppress(ValueError):  # of `**.csv`, until Python 3.13; raised before the first match
            yield from folder.glob(relative)
