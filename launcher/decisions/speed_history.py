"""Speed history: how fast earlier runs of the same job trained, and how long known hosts took to be ready."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median

from launcher.config import read_job
from launcher.core import Run
from launcher.core.job import JobSpec

Kind = tuple[str, int]
"""A GPU's name, and how many of it."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """What was measured on one kind of machine."""

    steps_per_s: float
    runs: int
    """So many were measured; the speed is their median."""


@dataclass(frozen=True, kw_only=True)
class SpeedHistory:
    """What the ledger knows that no market says."""

    speeds: Mapping[Kind, Speed] = field(default_factory=dict)
    boot_s: Mapping[str, float] = field(default_factory=dict)
    """By host, from rent to the armed lease: the image is fetched meanwhile."""


def speed_history_of(runs: Iterable[Run], provider: str, spec: JobSpec) -> SpeedHistory:
    """Return what is known of the provider's machines that helps to choose one for this job."""
    speeds: dict[Kind, list[float]] = defaultdict(list)
    boots: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        if run.provider != provider or run.offer is None:
            continue
        if run.boot_s is not None:
            boots[run.host].append(run.boot_s)
        # Steps per second compare only where a step is the same work.
        if run.steps_per_s and run.job == spec.name and _work(read_job(run.spec_json)) == _work(spec):
            speeds[run.offer.gpu_name or "", run.offer.gpus].append(run.steps_per_s)
    return SpeedHistory(
        speeds={kind: Speed(steps_per_s=median(found), runs=len(found)) for kind, found in speeds.items()},
        boot_s={host: median(found) for host, found in boots.items()},
    )


def _work(spec: JobSpec) -> tuple[object, ...]:
    """All that decides how much work a step is."""
    train = None if spec.train is None else replace(spec.train, steps=1)
    return spec.world_size, spec.nodes, train, spec.command, spec.env
