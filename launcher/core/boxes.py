"""Boxes: commands, status and downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from vastrun.contract.outcome import EpochSeconds, ExitCode, IdleGpus, Name, RankNumber, Seconds, Step
from vastrun.contract.records import MaxLength, Range, Text
from vastrun.launcher.core.left_out import NONE_LEFT_OUT, LeftOutFiles
from vastrun.launcher.core.verdict import Evidence

LeaseState = Literal["armed", "proving", "ending", "dead", "none"]
MAX_RANKS = 64
"""Ranks of one machine: as many as a job may ask for."""


@dataclass(frozen=True, kw_only=True)
class CommandResult:
    """A finished command on an instance."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class LocalProgram:
    """A program to start on this computer for interactive use."""

    argv: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str] | None = None
    """Complete environment; None: this process's."""


@dataclass(frozen=True, kw_only=True)
class SshAccess:
    """Login for OpenSSH's client to a box whose host key was checked."""

    host: str
    port: int
    user: str
    key_path: str
    """Path of the private key on this computer."""
    known_hosts_path: str
    """Path of the file on this computer that has the host key, under the name `[host]:port`."""
    folder: str
    """Absolute path of the box's folder."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The archive that is uploaded to a box."""

    path: str
    size: int
    """Bytes."""
    sha256: str


@dataclass(frozen=True, kw_only=True)
class DataContents:
    """The files of this computer that are sent for a job's `data`."""

    sizes: tuple[int, ...]
    """Bytes of each content; several files may have the same one."""
    withheld: tuple[str, ...] = ()
    """Files that are left out since they hold credentials."""


@dataclass(frozen=True, kw_only=True)
class RankStatus:
    """One rank as last seen by the supervisor."""

    rank: RankNumber
    pid: Annotated[int, Range(0, 2**31)] | None = None
    """None: it has ended."""
    step: Step = 0
    activity: Name = ""
    age_s: Seconds = 0.0
    """Seconds since this rank last moved."""


@dataclass(frozen=True, kw_only=True)
class BoxStatus:
    """Status of a box at one moment: the line of `onstart/status.sh`, its `supervisor` included."""

    at: EpochSeconds
    """Epoch seconds on the box."""
    box: Literal["idle", "running", "ended", "dead"]
    """`idle` (nothing started), `running`, `ended` (has an exit code) or `dead` (gone without one)."""
    exit_code: ExitCode | None = None
    lease: LeaseState = "none"
    lease_ends_at: EpochSeconds | None = None
    onstart_step: Annotated[str, Text(100)] = ""
    step: Step = 0
    steps: Step = 0
    loss: float | None = None
    log_bytes: Annotated[int, Range(0, 2**53)] = 0
    free_mb: Annotated[int, Range(0, 2**53)] | None = None
    received_mb: Annotated[int, Range(0, 2**53)] = 0
    sent_mb: Annotated[int, Range(0, 2**53)] = 0
    """MiB through its network interfaces since it started; 0 where it cannot say."""
    ranks: Annotated[tuple[RankStatus, ...], MaxLength(MAX_RANKS)] = ()
    idle_gpus: IdleGpus | None = None
    """GPUs that work less than half of the time for minutes now; None: they are busy, or it is unknown."""


@dataclass(frozen=True, kw_only=True)
class CheckpointCopy:
    """Download of a checkpoint while the training runs."""

    name: str
    """`step-000500`."""
    size: int
    """Bytes of all its files."""
    held: int
    """Bytes that are downloaded."""
    damaged: bool = False
    """It does not match its manifest, and is left on the box."""
    is_usable: bool = False
    """True once: it has its place without its older checkpoints, which follow."""
    taken_at: float | None = None
    """Epoch seconds by the box's clock; None: it does not say."""

    @property
    def is_whole(self) -> bool:
        """True if it is downloaded and checked: the next run continues from it."""
        return self.held == self.size and not self.damaged


@dataclass(frozen=True, kw_only=True)
class PullResult:
    """A file or folder that was downloaded by its path."""

    files: int
    bytes: int
    damaged: tuple[str, ...] = ()
    """Files that could not be downloaded whole."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """New names of files whose own name another file has, by their paths on the box."""
    left_out: LeftOutFiles = NONE_LEFT_OUT
    """Files at that path that the box does not offer."""


@dataclass(frozen=True, kw_only=True)
class CollectResult:
    """Outputs that were downloaded from a box."""

    evidence: Evidence
    files: int
    bytes: int
    renamed: Mapping[str, str] = field(default_factory=dict)
    """New names of files that this computer's disk cannot distinguish, by their paths on the box."""
    log_bytes_not_shown: int = field(default=0, compare=False)
    """Bytes of the log that were downloaded after the end, and not shown live."""
