"""Speed history: speeds of earlier runs of a job's shape, and boot times of known hosts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from statistics import median

from vastrun.contract.workload import Workloads
from vastrun.launcher.config import read_job
from vastrun.launcher.core import MeasuredRun, Offer
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.job_shape import JobShape, shape_of, shape_prefilter
from vastrun.launcher.decisions.workload import EFFICIENCY

MachineKind = tuple[str, int]
"""Name and number of GPUs."""

MAX_RUNS = 50
"""Max. number of runs on a kind of machine that count, newest first: programs and drivers change."""
_MAX_JOBS = 4_000
"""Number of cached shapes: a batch needs the same ones at each of its runs."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Speed that was measured on one kind of machine."""

    steps_per_s: float
    runs: int
    """Number of runs; the speed is their median."""


@dataclass(frozen=True, kw_only=True)
class BidHistory:
    """Hours of machines rented by a bid, and the number of preemptions."""

    hours: float = 0.0
    preemptions: int = 0

    @property
    def per_hour(self) -> float:
        """Expected preemptions per hour; one in ten hours without history."""
        return (self.preemptions + 1) / (self.hours + 10)


@dataclass(frozen=True, kw_only=True)
class SpeedHistory:
    """Speeds, boot times and preemptions that the ledger has recorded."""

    speeds: Mapping[MachineKind, Speed] = field(default_factory=dict)
    """Speeds of jobs of the same shape."""
    boot_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds from rent to the armed lease by host, image pull included."""
    workloads: Workloads | None = None
    """Estimated workloads of the job's steps; None: not estimated."""
    efficiency: float = EFFICIENCY
    """Share of the roofline that earlier trainings reached."""
    bids: BidHistory = BidHistory()


def speed_history_of(
    runs: Iterable[MeasuredRun], provider: str, spec: JobSpec, *, excluded_host: str | None = None
) -> SpeedHistory:
    """Return the history of the provider's machines for the choice of one for this job.

    `runs`: newest first. `excluded_host`: its runs do not count.
    """
    shape, may_match = shape_of(spec), shape_prefilter(spec)
    speeds: dict[MachineKind, list[float]] = defaultdict(list)
    boots: dict[str, list[float]] = defaultdict(list)
    bid_hours, preemptions = 0.0, 0
    for run in runs:
        if run.provider != provider or run.host == excluded_host:
            continue
        bid_hours += run.bid_hours
        preemptions += run.preempted
        if run.boot_s is not None:
            boots[run.host].append(run.boot_s)
        found = speeds[run.gpu_name, run.gpus]
        # To read a job takes longer than all else here.
        if not run.steps_per_s or len(found) >= MAX_RUNS or not may_match(run.spec_json):
            continue
        if _shape(run.spec_json) == shape:
            found.append(run.steps_per_s)
    return SpeedHistory(
        speeds={
            kind: Speed(steps_per_s=median(found), runs=len(found)) for kind, found in speeds.items() if found
        },
        boot_s={host: median(found) for host, found in boots.items()},
        bids=BidHistory(hours=bid_hours, preemptions=preemptions),
    )


def kind_of(offer: Offer) -> MachineKind:
    """Return the kind of machine that is on offer."""
    return offer.gpu_name or "", offer.gpus


def kind_text(kind: MachineKind) -> str:
    """Describe a kind of machine: `RTX 4090 x1`."""
    name, gpus = kind
    return f"{name or 'CPU'} x{gpus}" if name or gpus else "CPU"


@lru_cache(maxsize=_MAX_JOBS)
def _shape(spec_json: str) -> JobShape:
    return shape_of(read_job(spec_json))
