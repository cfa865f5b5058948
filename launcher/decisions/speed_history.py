"""Speed history: how fast earlier runs of a job's shape trained, and how long known hosts took to start."""

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
"""A GPU's name, and how many of it."""

MAX_RUNS = 50
"""So many of the newest runs on a kind of machine count: programs and drivers change."""
_MAX_JOBS = 4_000
"""Shapes that are remembered: a batch asks for the same ones at each of its runs."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured on one kind of machine."""

    steps_per_s: float
    runs: int
    """So many were measured; the speed is their median."""


@dataclass(frozen=True, kw_only=True)
class BidHistory:
    """Hours of machines rented by a bid, and how many were taken away."""

    hours: float = 0.0
    preemptions: int = 0

    @property
    def per_hour(self) -> float:
        """Preemptions to expect per hour: one in ten hours before anything was seen."""
        return (self.preemptions + 1) / (self.hours + 10)


@dataclass(frozen=True, kw_only=True)
class SpeedHistory:
    """What the ledger knows that no market says."""

    speeds: Mapping[MachineKind, Speed] = field(default_factory=dict)
    """Of jobs of the same shape."""
    boot_s: Mapping[str, float] = field(default_factory=dict)
    """By host, from rent to the armed lease: the image is fetched meanwhile."""
    workloads: Workloads | None = None
    """What was foretold of the job's steps; None: nothing was."""
    efficiency: float = EFFICIENCY
    """What of the roofline earlier trainings reached."""
    bids: BidHistory = BidHistory()


def speed_history_of(
    runs: Iterable[MeasuredRun], provider: str, spec: JobSpec, *, excluded_host: str | None = None
) -> SpeedHistory:
    """Return what is known of the provider's machines that helps to choose one for this job.

    `runs`: the newest first. `but_not_on`: a host whose own runs say nothing here.
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
