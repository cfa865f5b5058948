"""The job: every option of a job file, its default and its limits. `launcher/config` parses files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Annotated, Literal
from urllib.parse import unquote, urlsplit

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from vastrun.contract.limits import Auto, Count, Positive
from vastrun.contract.records import Pattern

RetryCause = Literal[
    "out_of_memory", "signal", "communication", "data", "disk", "host", "hang", "preempted", "lost"
]
RestartCause = Literal["out_of_memory", "signal", "communication", "host", "hang"]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Requirements for the machine. Every value is a hard limit."""

    gpus: Annotated[int, Ge(0), Le(64)] = 1
    """Number of GPUs; 0 trains on the CPU."""
    gpu_names: tuple[str, ...] = ()
    """Names as Vast prints them ("RTX 4090", "A100 SXM4"); empty: any."""
    gpu_memory_gb: Annotated[float, Ge(0)] | Auto = 0.0
    """Memory per GPU. auto: the estimate for the onboard trainer, with a rank's share of a batch at once."""
    nvlink: bool = False
    """The GPUs must be connected by NVLink."""
    cpu_cores: Annotated[int, Ge(0)] = 0
    """CPU cores; on a shared machine those in the job's share."""
    memory_gb: Annotated[float, Ge(0)] = 0.0
    disk_gb: Annotated[float, Ge(8)] = 40.0
    disk_mbps: Annotated[float, Ge(0)] = 0.0
    """Minimum speed of the disk in MB/s, as the provider measured it."""
    cuda: Annotated[float, Ge(0)] = 0.0
    """Min. CUDA version that the driver must support."""
    reliability: Annotated[float, Ge(0), Le(1)] = 0.95
    regions: tuple[Annotated[str, MinLen(2), MaxLen(2)], ...] = ()
    """Two-letter country codes; empty: anywhere."""
    datacenter: bool = False
    """Only hosts that the provider has verified as datacenters."""
    static_ip: bool = False
    """Only machines whose IP address does not change."""
    interruptible: bool = False
    """Bid for a machine that may be preempted."""
    down_mbps: Annotated[float, Ge(0)] = 0.0
    """Min. download speed in Mbit/s, as the host lists it; measured with a file of PyPI, too."""
    up_mbps: Annotated[float, Ge(0)] = 0.0
    """Minimum upload speed in Mbit/s, as the host lists it."""
    link_mbps: Annotated[float, Ge(0)] | None = None
    """Min. speed in Mbit/s between the nodes of a run, measured before data is fetched; 0: not measured.
    None: `policy.LINK_MBPS` where machines cost money, else 0."""

    @property
    def min_gpu_gb(self) -> float:
        """Return `gpu_memory_gb` as a number: `auto` was resolved before."""
        assert self.gpu_memory_gb != "auto"
        return self.gpu_memory_gb

    def times(self, count: int) -> Resources:
        """Return the resources of `count` such jobs on one machine."""
        return replace(
            self,
            gpus=self.gpus * count,
            cpu_cores=self.cpu_cores * count,
            memory_gb=self.memory_gb * count,
            disk_gb=self.disk_gb * count,
        )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on cost and time of a run, which the box enforces, too."""

    usd_per_hour: Positive | None = None
    usd: Positive | None = None
    """USD for the whole run."""
    credit: Literal["require", "warn"] = "require"
    """Reaction to an account with less credit than the run may cost: refuse the order, or only warn."""
    hours: Positive = 12.0
    """Max. hours that a machine runs, without its loading."""
    deadline: Annotated[str, MinLen(1)] | None = None
    """Deadline of the run: a time with its zone, in ISO form, however the job file gives it."""
    stall_s: Positive = 600.0
    """A rank that makes no progress for this long is hung."""
    start_s: Positive = 900.0
    """Seconds of the same limit before the first step: imports, compilation, loading."""
    collect_s: Positive | None = None
    """Seconds that a finished box waits for the download of its outputs; 30 min on a paid one, else a day."""
    snapshot_gb: Positive | None = None
    """Max. GB of a snapshot; by default `outputs_gb` where `checkpoints` names no files, else no limit."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """The user's code to upload. In a git checkout: what git tracks or would track."""

    path: str = "."
    """Folder, relative to the job file."""
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    """Globs of files and folders to upload although git ignores them."""


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A secret by name. Its value comes from one of four sources, and is never stored.

    By default the source is the variable of that name in the launcher's environment.
    """

    name: Annotated[str, MinLen(1)]
    file: str | None = None
    """The file whose whole text is the value."""
    env_file: str | None = None
    """The file of `NAME=value` lines, such as `.env`, that has one for `name`."""
    command: Annotated[str, MinLen(1)] | None = None
    """Prints the value as one line: a program with arguments, or a script for sh."""
    folder: str | None = None
    """The folder in which `command` is run; None: that of the job file."""


@dataclass(frozen=True, kw_only=True)
class NotifyUrl:
    """Receiver of notifications. The URL is a secret: anyone who knows it can write there."""

    url: Annotated[str, MinLen(1)] | None = field(default=None, repr=False)
    url_env: Annotated[str, MinLen(1)] | None = None
    """Environment variable with the URL, so that it is stored nowhere."""


@dataclass(frozen=True, kw_only=True)
class Success:
    """Conditions that prove the success of the user's own command. All of them must hold."""

    files: tuple[str, ...] = ()
    """Globs, relative to the code folder; each must match a file that is not empty."""
    log: str | None = None
    """A regular expression that rank 0's log must contain."""
    steps: Count | None = None
    """The step that every rank's heartbeat must reach."""
    exit_code: Literal[0] | None = None
    """Declares that exit code 0 of every rank is enough."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Snapshots of a command, its files that are checkpoints, and where both are uploaded, too."""

    files: Annotated[str, MinLen(1)] | None = None
    """A glob relative to the code folder or in `$VASTRUN_OUTPUTS/`; `{resume}` names the newest match."""
    keep: Annotated[int, Ge(1), Le(100)] = 2
    """Number of the newest matches that a snapshot has."""
    every_s: Positive = 60.0
    """Min. seconds between two snapshots of what `command` wrote."""
    push: str | None = None
    """URL of fsspec to which the box pushes checkpoints."""
    start_from: str | None = None
    """The URL of a run's pushed checkpoints; the box continues from the newest whole one."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A file that each machine downloads to `$VASTRUN_DATA`, or files that are sent there, before its ranks
    start."""

    url: Annotated[str, MinLen(1)] | None = None
    """An https://, http://, hf:// or s3:// URL, without credentials; None: of this computer."""
    path: str | None = None
    """Path in `$VASTRUN_DATA`; None: the name at the end of the URL. Without a URL: the file or folder."""
    sha256: str | None = None
    """Checksum. Without a URL: that of all files as they were submitted; None before."""
    md5: str | None = None
    """Checksum, for files whose SHA-256 is not published."""
    size: Annotated[int, Ge(0), Le(10**14)] | None = None
    """Exact size in bytes. Either this or `max_gb`."""
    max_gb: Annotated[float, Gt(0), Le(100_000)] | None = None
    """Max. size in GB, where the exact one is unknown."""

    @property
    def target(self) -> str:
        """Path in `$VASTRUN_DATA`."""
        if self.url is None:
            return PurePosixPath(self.path or "").name
        return unquote(urlsplit(self.url).path.rpartition("/")[2]) if self.path is None else self.path

    @property
    def max_bytes(self) -> int:
        """Max. size in bytes: the exact one, if it is known."""
        return self.size if self.size is not None else int((self.max_gb or 0.0) * 1e9)


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A machine that hosts slots for other runs, instead of a job. No job file has it."""

    slots: Annotated[int, Ge(1), Le(64)] = 1
    """Number of equal parts; with GPUs, one for each GPU."""
    idle_s: Positive = 120.0
    """Seconds without a request for a slot after which it ends."""


INTERNAL = {"ours": True}
"""Metadata of a field that no job file has: vastrun sets it itself."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job, as its YAML file describes it. `config/program_kinds.py` adds the section of its program."""

    name: Annotated[str, MinLen(1)]
    resources: Resources = field(default_factory=Resources)
    limits: Limits = field(default_factory=Limits)
    image: str | None = None
    image_unpinned: bool = False
    """Permission to rent with an image that has no digest."""
    code: Code | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()
    setup: tuple[str, ...] = ()
    """Shell commands, run in the code folder before training."""
    ranks: Annotated[int, Ge(1), Le(64)] | None = None
    """Number of processes on each machine; None: the number of its GPUs."""
    nodes: Annotated[int, Ge(1), Le(64)] = 1
    """Number of machines that train together."""
    command: Annotated[tuple[str, ...], MinLen(1)] | None = None
    """The user's own program, started once per rank as torchrun does. A string is a shell script."""
    success: Success | None = None
    """Conditions of success; required with `command`."""
    outputs: tuple[str, ...] = ()
    """Globs, relative to the code folder, of files to download; with `!` before, of files that are not."""
    outputs_gb: Annotated[float, Ge(0)] = 5.0
    """Max. GB of files of `command` that are downloaded where `outputs` names no files."""
    retry: Mapping[RetryCause, Annotated[int, Ge(0), Le(20)]] = field(default_factory=dict)
    """Max. retries on a new machine, by cause."""
    restarts: Mapping[RestartCause, Annotated[int, Ge(0), Le(20)]] | None = None
    """Max. restarts of the ranks by the box, by cause; None: `vastrun/contract/job.py`."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    data: tuple[DataFile, ...] = ()
    """Files that each machine has in `$VASTRUN_DATA` before its ranks start."""
    notify: tuple[NotifyUrl, ...] = ()
    """Receivers of notifications: of the end, of a failure, and when half, 80 % and all of `limits.usd` is
    spent."""
    tags: tuple[str, ...] = ()
    """The user's own words, by which costs can be grouped."""
    hold: Hold | None = field(default=None, metadata=INTERNAL)
    """Set where the machine is held for other runs: there is no program."""
    slot_on: str | None = field(default=None, metadata=INTERNAL)
    """Id of the run on whose machine it takes a slot; None: any machine that is held for all jobs."""

    job_file: str | None = field(default=None, metadata=INTERNAL)
    """Path of the job file, as typed; None: it came from no file, or from a batch."""
    code_digest: Annotated[str, Pattern("[0-9a-f]{64}")] | None = field(default=None, metadata=INTERNAL)
    """Digest of the code as it was submitted; None before."""

    @property
    def data_gb(self) -> float:
        """Return the GB that each machine gets for `data`, or their limit."""
        return sum(file.max_bytes for file in self.data) / 1e9

    @property
    def sent_gb(self) -> float:
        """Return the GB of these that this computer sends to each machine."""
        return sum(file.max_bytes for file in self.data if file.url is None) / 1e9

    @property
    def ranks_per_node(self) -> int:
        """Number of ranks on one machine."""
        return self.ranks or max(1, self.resources.gpus)

    @property
    def world_size(self) -> int:
        """Total number of ranks."""
        return self.nodes * self.ranks_per_node
