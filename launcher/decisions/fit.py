"""Fit: which GPUs hold a job, and how long its steps take there, by what was foretold of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vastrun.contract.gpus import PEAKS, peak_of
from vastrun.contract.workload import Workload, Workloads
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.workload import (
    chosen_workloads,
    is_too_small,
    largest_that_fits,
    needed_gb,
    roofline,
)


@dataclass(frozen=True, kw_only=True)
class GpuFit:
    """How a job fits one kind of GPU. Times are estimates by roofline: nobody measured them."""

    gpu: str
    memory_gb: float
    strategy: str
    """What the training would choose there."""
    needed_gb: float
    """With all of a rank's share of the batch at once."""
    least_gb: float
    """With one window at once."""
    windows: int | None
    """So many at once have room; None: the GPU does not hold the job."""
    step_s: float | None
    """None: it does not hold the job."""
    train_s: float | None
    """All steps."""
    mfu: float | None
    """The model FLOP utilisation that this would be."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """What a step of a job takes of each rank, and which GPUs hold that."""

    world_size: int
    steps: int
    workloads: Workloads
    efficiency: float
    """The share of the roofline that steps are taken to reach."""
    gpus: tuple[GpuFit, ...]
    """Those that hold it first, the fastest before the others."""

    @property
    def holds(self) -> bool:
        """Tell whether one of the GPUs holds the job."""
        return any(gpu.windows is not None for gpu in self.gpus)


def fit_of(workloads: Workloads, spec: JobSpec, names: Sequence[str], efficiency: float) -> Fit:
    """Return how the job fits the GPUs of these names, in each size that they come in; none: all known.

    Raises KeyError with a name that no table has.
    """
    kinds = [(name, float(size)) for name in names or PEAKS for size in _sizes_gb(name)]
    found = [
        _fit_of_one(workloads, steps, spec, name, size, efficiency)
        for name, size in kinds
        if (steps := chosen_workloads(workloads, spec, size))
    ]
    assert spec.train is not None
    return Fit(
        world_size=spec.world_size,
        steps=spec.train.steps,
        workloads=workloads,
        efficiency=efficiency,
        gpus=tuple(sorted(found, key=_fastest_first)),
    )


def _sizes_gb(name: str) -> tuple[int, ...]:
    peak = peak_of(name)
    if peak is None:
        raise KeyError(name)
    return peak.sizes_gb


def _fit_of_one(
    workloads: Workloads,
    steps: Sequence[Workload],
    spec: JobSpec,
    name: str,
    size_gb: float,
    efficiency: float,
) -> GpuFit:
    """`steps`: those of the strategy that is chosen there, the largest micro-batch first."""
    most, least = steps[0], steps[-1]
    holds = not is_too_small(workloads, spec, size_gb)
    speed = roofline(workloads, spec, name, size_gb, efficiency) if holds else None
    step_s = None if speed is None else 1 / speed.steps_per_s
    assert spec.train is not None
    return GpuFit(
        gpu=name,
        memory_gb=size_gb,
        strategy=most.strategy,
        needed_gb=needed_gb(most, spec.world_size),
        least_gb=needed_gb(least, spec.world_size),
        windows=largest_that_fits(workloads, spec, size_gb) if holds else None,
        step_s=step_s,
        train_s=None if step_s is None else step_s * spec.train.steps,
        mfu=None if speed is None else speed.mfu,
    )


def _fastest_first(gpu: GpuFit) -> tuple[bool, float]:
    return gpu.windows is None, gpu.step_s or gpu.least_gb
