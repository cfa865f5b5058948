"""Fit: which GPUs hold a job, and how long its steps take there, by the estimate of a step."""

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
    """Fit of a job to one kind of GPU. Times are estimates by roofline, not measurements."""

    gpu: str
    memory_gb: float
    strategy: str
    """Strategy that the training would choose there."""
    needed_gb: float
    """Memory in GB for all of a rank's share of the batch at once."""
    least_gb: float
    """Memory in GB for one window at once."""
    windows: int | None
    """Number of windows that fit at once; None: the GPU does not hold the job."""
    step_s: float | None
    """Seconds per step; None: the GPU does not hold the job."""
    train_s: float | None
    """Seconds for all steps."""
    mfu: float | None
    """Model FLOP utilisation at that speed."""


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Memory and time that a step of a job needs on each rank, and the GPUs that hold it."""

    world_size: int
    steps: int
    workloads: Workloads
    efficiency: float
    """Share of the roofline that steps are assumed to reach."""
    gpus: tuple[GpuFit, ...]
    """GPUs: first those that hold the job, the fastest first."""

    @property
    def holds(self) -> bool:
        """Return whether one of the GPUs holds the job."""
        return any(gpu.windows is not None for gpu in self.gpus)


def fit_of(workloads: Workloads, spec: JobSpec, names: Sequence[str], efficiency: float) -> Fit:
    """Return the fit of the job to the GPUs of these names, in each of their sizes; no names: all known
    GPUs.

    Raises KeyError with a name that is not in the table.
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
    """`steps`: workloads of the strategy that is chosen there, the largest micro-batch first."""
    largest, smallest = steps[0], steps[-1]
    holds = not is_too_small(workloads, spec, size_gb)
    speed = roofline(workloads, spec, name, size_gb, efficiency) if holds else None
    step_s = None if speed is None else 1 / speed.steps_per_s
    assert spec.train is not None
    return GpuFit(
        gpu=name,
        memory_gb=size_gb,
        strategy=largest.strategy,
        needed_gb=needed_gb(largest, spec.world_size),
        least_gb=needed_gb(smallest, spec.world_size),
        windows=largest_that_fits(workloads, spec, size_gb) if holds else None,
        step_s=step_s,
        train_s=None if step_s is None else step_s * spec.train.steps,
        mfu=None if speed is None else speed.mfu,
    )


def _fastest_first(gpu: GpuFit) -> tuple[bool, float]:
    return gpu.windows is None, gpu.step_s or gpu.least_gb
