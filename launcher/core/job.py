"""The job file as a noun: every option, its default and its limits. `launcher/config` reads files into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from vastrun.contract.config import Auto, TrainConfig
from vastrun.contract.job import min_nodes

Positive = Annotated[float, Gt(0)]
RetryCause = Literal[
    "out_of_memory", "signal", "communication", "data", "disk", "host", "slow", "hang", "preempted", "lost"
]
RestartCause = Literal["out_of_memory", "signal", "communication", "host", "hang"]


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The machine. Every value is a hard limit."""

    gpus: Annotated[int, Ge(0), Le(64)] = 1
    """How many GPUs; 0 trains on the CPU."""
    gpu_names: tuple[str, ...] = ()
    """Names as Vast prints them ("RTX 4090", "A100 SXM4"); empty: any."""
    gpu_memory_gb: Annotated[float, Ge(0)] | Auto = 0.0
    """Per GPU. auto: what the onboard trainer is foretold to need, with a rank's share of a batch at once."""
    nvlink: bool = False
    """The GPUs must be connected by NVLink."""
    cpu_cores: Annotated[int, Ge(0)] = 0
    """CPU cores; on a shared machine those in the job's share."""
    memory_gb: Annotated[float, Ge(0)] = 0.0
    disk_gb: Annotated[float, Ge(8)] = 40.0
    disk_mbps: Annotated[float, Ge(0)] = 0.0
    """Minimum speed of the disk in MB/s, as the provider measured it."""
    cuda: Annotated[float, Ge(0)] = 0.0
    """The driver must support at least this CUDA version."""
    reliability: Annotated[float, Ge(0), Le(1)] = 0.95
    regions: tuple[Annotated[str, MinLen(2), MaxLen(2)], ...] = ()
    """Two-letter country codes; empty: anywhere."""
    datacenter: bool = False
    """Only hosts that the provider has verified as datacenters."""
    static_ip: bool = False
    """Only machines whose IP address does not change."""
    interruptible: bool = False
    """Bid for a machine that may be taken away."""
    down_mbps: Annotated[float, Ge(0)] = 0.0
    """Least download speed, as the host lists it; measured too, before anything is shipped."""
    up_mbps: Annotated[float, Ge(0)] = 0.0
    """Minimum upload speed in Mbit/s, as the host lists it."""
    down_url: Annotated[str, MinLen(1)] | None = None
    """What is downloaded to measure it; None: a file of PyPI's."""
    link_mbps: Annotated[float, Ge(0)] | None = None
    """Least speed between the nodes of a run, measured before anything is fetched; 0: it is not measured.
    None: `policy.LINK_MBPS` where machines cost money, else 0."""

    @property
    def least_gpu_gb(self) -> float:
        """Return `gpu_memory_gb` as a number: of what is rented `auto` was answered before."""
        assert self.gpu_memory_gb != "auto"
        return self.gpu_memory_gb


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a run may cost and how long it may take; held on the box too."""

    usd_per_hour: Positive | None = None
    usd: Positive | None = None
    """For the whole run."""
    hours: Positive = 12.0
    """How long a machine may run; it loads before that."""
    deadline: Annotated[str, MinLen(1)] | None = None
    """When the run must be done: a moment with its zone, in ISO form, whatever the job file says it in."""
    stall_s: Positive = 600.0
    """A rank that makes no progress for this long is hung."""
    start_s: Positive = 900.0
    """The same limit before the first step: imports, compilation, loading."""
    collect_s: Positive | None = None
    """How long a finished box waits for its outputs to be collected; 30 min on a paid one, else a day."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """The user's code to ship. In a git checkout: what git tracks or would track."""

    path: str = "."
    """Relative to the job file."""
    exclude: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    """Globs of files and folders to ship though git ignores them."""


@dataclass(frozen=True, kw_only=True)
class Secret:
    """A secret by name. Its value comes from the environment or from a file, and is never stored."""

    name: Annotated[str, MinLen(1)]
    file: str | None = None


@dataclass(frozen=True, kw_only=True)
class NotifyUrl:
    """Where to tell what a run has reached. The URL lets anybody write there: it is a secret."""

    url: Annotated[str, MinLen(1)] | None = field(default=None, repr=False)
    url_env: Annotated[str, MinLen(1)] | None = None
    """The environment variable that holds it, so that it is stored nowhere."""


@dataclass(frozen=True, kw_only=True)
class Success:
    """What proves that a user's own command worked. All that is given must hold."""

    files: tuple[str, ...] = ()
    """Globs, relative to the code folder; each must match a file that is not empty."""
    log: str | None = None
    """A regular expression that rank 0's log must contain."""
    steps: Annotated[int, Ge(1)] | None = None
    """The step that every rank's heartbeat must reach."""
    exit_code: Literal[0] | None = None
    """Says that exit code 0 of every rank is proof enough."""


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """Which files of a command are checkpoints, and where checkpoints go besides being downloaded."""

    files: Annotated[str, MinLen(1)] | None = None
    """A glob relative to the code folder or in `$VASTRUN_OUTPUTS/`; each match is one of `command`."""
    keep: Annotated[int, Ge(1), Le(100)] = 2
    """Number of the newest checkpoints that are kept."""
    every_s: Positive = 60.0
    """Least seconds between two checkpoints of `command` that are kept while it runs."""
    push: str | None = None
    """A URL that fsspec knows; the box pushes to it by itself."""
    start_from: str | None = None
    """The URL of a run's pushed checkpoints; the box continues from the newest whole one."""


@dataclass(frozen=True, kw_only=True)
class DataVolume:
    """A disk on a rented machine that keeps `$VASTRUN_DATA` for later runs there."""

    name: Annotated[str, MinLen(1), MaxLen(40)]
    """Jobs that name the same volume share it."""
    gb: Annotated[int, Ge(1), Le(10_000)]
    """Its size, which cannot change later."""
    usd_per_month: Positive | None = None
    """Create it only where it costs at most this; None: $0.30 a GB."""

    @property
    def max_usd_per_month(self) -> float:
        """Return the limit on its price."""
        return self.gb * 0.3 if self.usd_per_month is None else self.usd_per_month


@dataclass(frozen=True, kw_only=True)
class Hold:
    """A machine that takes the slots of other runs, instead of a job of its own. No job file has it."""

    slots: Annotated[int, Ge(1), Le(64)] = 1
    """Into how many equal parts it is divided; with GPUs, one a GPU."""
    idle_s: Positive = 120.0
    """It ends by itself when no slot was wanted for so long."""


OURS = {"ours": True}
"""Of a field that no job file has: vastrun sets it itself."""


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """What the user asked for: one YAML file."""

    name: Annotated[str, MinLen(1)]
    resources: Resources = field(default_factory=Resources)
    limits: Limits = field(default_factory=Limits)
    image: str | None = None
    image_unpinned: bool = False
    """Rent with an image that has no digest."""
    code: Code | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[Secret, ...] = ()
    setup: tuple[str, ...] = ()
    """Shell commands, run in the code folder before training."""
    ranks: Annotated[int, Ge(1), Le(64)] | None = None
    """Processes to train with on each machine; the number of its GPUs when not given."""
    nodes: Annotated[int, Ge(1), Le(64)] = 1
    """Machines that train together."""
    train: TrainConfig | None = None
    """The onboard trainer. Either this or `command`."""
    command: Annotated[tuple[str, ...], MinLen(1)] | None = None
    """The user's own program, started once a rank as torchrun would. A string is a shell script."""
    success: Success | None = None
    """Needed with `command`."""
    outputs: tuple[str, ...] = ()
    """Globs, relative to the code folder, of files to download; with `!` before, of files that are not."""
    outputs_gb: Annotated[float, Ge(0)] = 5.0
    """Most GB of what `command` wrote that are downloaded where `outputs` names no files."""
    retry: Mapping[RetryCause, Annotated[int, Ge(0), Le(20)]] = field(default_factory=dict)
    """How often to start again, on a new machine, by cause."""
    restarts: Mapping[RestartCause, Annotated[int, Ge(0), Le(20)]] | None = None
    """How often the box starts the ranks again by itself, by cause; None: `vastrun/contract/job.py`."""
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    volume: DataVolume | None = None
    """Keeps the data of a rented machine for later runs; None: they go with the machine."""
    notify: tuple[NotifyUrl, ...] = ()
    """Told of the end, of a failure, and when half, 80 % and all of `limits.usd` is spent."""
    tags: tuple[str, ...] = ()
    """Words of the user's own, by which costs are added up."""
    hold: Hold | None = field(default=None, metadata=OURS)
    """The machine is held for other runs: there is neither `train` nor `command`."""
    slot_on: str | None = field(default=None, metadata=OURS)
    """The id of the run whose machine it takes a slot of; None: any that is held for everybody."""

    job_file: str | None = field(default=None, metadata=OURS)
    """The file that it was read from, as typed; None: it came from no file, or from a batch."""

    @property
    def auto_keys(self) -> tuple[str, ...]:
        """Return the keys that what is foretold of a step has yet to answer."""
        train = self.train
        open_keys = {
            "resources.gpu_memory_gb": self.resources.gpu_memory_gb == "auto",
            "train.batch": train is not None and train.batch == "auto",
        }
        return tuple(key for key, is_open in open_keys.items() if is_open)

    @property
    def ranks_per_node(self) -> int:
        """How many ranks train on one machine."""
        return self.ranks or max(1, self.resources.gpus)

    @property
    def min_nodes(self) -> int:
        """Return the minimum number of nodes with which the training continues when others left."""
        train = self.train
        return (
            self.nodes if train is None else min_nodes(self.nodes, train.strategy, train.diloco.least_nodes)
        )

    @property
    def world_size(self) -> int:
        """How many ranks train together."""
        return self.nodes * self.ranks_per_node
