"""Workload: whether a GPU has room for a job, and its speed, by the estimate of a step. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from vastrun.contract.gpus import PEAKS, peak_of
from vastrun.contract.workload import Workload, Workloads
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import MeasuredRun
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.policy import GPU_CONTEXT_GB, GPU_FRAGMENTS, GPU_MESSAGES_GB

_OPERATION_S = 6e-6
"""Seconds for a host to start one operation: with small operations a GPU waits for it."""
_MAX_READ = 20
"""Max. number of runs that are read: parsing a job takes a while."""
EFFICIENCY = 0.4
"""Share of the roofline that a training usually reaches."""


@dataclass(frozen=True, kw_only=True)
class Roofline:
    """Estimated speed of a training on a GPU, without a measurement."""

    steps_per_s: float
    mfu: float
    """Model FLOP utilisation at this speed."""


def chosen_workloads(workloads: Workloads, spec: JobSpec, gpu_memory_gb: float) -> list[Workload]:
    """Return the workloads of the strategy that the training would choose, the largest micro-batch first."""
    gpu_bytes = int(gpu_memory_gb * 1e9) if spec.resources.gpus else None
    return workloads.of(program_of(spec).strategy(workloads, spec.world_size, gpu_bytes))


def needed_gb(workload: Workload, world_size: int) -> float:
    """Return the memory that a GPU must have for a workload, in GB."""
    besides_gb = GPU_CONTEXT_GB + (GPU_MESSAGES_GB if world_size > 1 else 0.0)
    return workload.peak.total * GPU_FRAGMENTS / 1e9 + besides_gb


def whole_gb(workloads: Workloads, spec: JobSpec) -> float | None:
    """Return the min. GPU memory in GB for all of a rank's share of a batch at once.

    Rounded up to a tenth; None: unknown. The strategy may depend on the memory, so each size is tried.
    """
    for tenths in range(1, 10_000):
        size_gb = tenths / 10
        found = chosen_workloads(workloads, spec, size_gb)
        if found and needed_gb(found[0], spec.world_size) <= size_gb:
            return size_gb
    return None


def min_gb(workloads: Workloads, spec: JobSpec, gpu_memory_gb: float) -> float | None:
    """Return the min. memory in GB that a GPU of that size needs for the job; None: unknown.

    A program may make its micro-batches smaller where memory is short.
    """
    found = chosen_workloads(workloads, spec, gpu_memory_gb)
    if not found:
        return None
    return needed_gb(found[-1 if program_of(spec).fits_micro_batch() else 0], spec.world_size)


def is_too_small(workloads: Workloads, spec: JobSpec, gpu_memory_gb: float) -> bool:
    """Return whether a GPU of that size cannot hold the job."""
    needed = min_gb(workloads, spec, gpu_memory_gb) if gpu_memory_gb else None
    return needed is not None and needed > gpu_memory_gb


def largest_that_fits(workloads: Workloads, spec: JobSpec, gpu_memory_gb: float) -> int | None:
    """Return the max. windows of a rank's share that fit a GPU at once; None: not even the fewest.

    Between the two estimated sizes memory grows in proportion, or less.
    """
    found = chosen_workloads(workloads, spec, gpu_memory_gb)
    if not found:
        return None
    largest, smallest = found[0], found[-1]
    need_largest, need_smallest = (needed_gb(each, spec.world_size) for each in (largest, smallest))
    if need_largest <= gpu_memory_gb:
        return largest.micro_batch
    if need_smallest > gpu_memory_gb or largest is smallest:
        return None
    per_window = (need_largest - need_smallest) / (largest.micro_batch - smallest.micro_batch)
    room = smallest.micro_batch + int((gpu_memory_gb - need_smallest) / per_window)
    return max(size for size in range(1, room + 1) if largest.micro_batch % size == 0)


def roofline(
    workloads: Workloads, spec: JobSpec, gpu_name: str, gpu_memory_gb: float, efficiency: float = EFFICIENCY
) -> Roofline | None:
    """Estimate the speed on a GPU; None: its peaks are not in the table, or it does not hold the job.

    A step takes as long as the slowest of its three parts: arithmetic, memory, and starting each operation.
    """
    peak, fits = peak_of(gpu_name), largest_that_fits(workloads, spec, gpu_memory_gb)
    if peak is None or fits is None or spec.resources.gpus == 0:
        return None
    found = chosen_workloads(workloads, spec, gpu_memory_gb)
    work = min(found, key=lambda each: abs(math.log(each.micro_batch / fits)))
    per_s = peak.flops_per_s(program_of(spec).precision)
    arithmetic_s, memory_s = work.flops / per_s, work.traffic_bytes / peak.bytes_per_s
    min_s = max(arithmetic_s, memory_s, 1e-6) / efficiency
    steps_per_s = 1 / max(min_s, work.operations * _OPERATION_S)
    return Roofline(steps_per_s=steps_per_s, mfu=arithmetic_s * steps_per_s)


def efficiency_of(runs: Iterable[MeasuredRun], known: Callable[[JobSpec], Workloads | None]) -> float:
    """Return the share of the roofline that earlier trainings reached: the median of the newest.

    `known`: returns the estimate of a job. Without a measurement, EFFICIENCY.
    """
    trained = (run for run in runs if run.steps_per_s and run.gpu_name)
    shares: list[float] = []
    for run in islice(trained, _MAX_READ):
        spec = read_job(run.spec_json)
        if (workloads := known(spec)) is None:
            continue
        could = roofline(workloads, spec, run.gpu_name, run.gpu_memory_gb, 1.0)
        if could is not None and run.steps_per_s and len(shares) < 9:
            shares.append(run.steps_per_s / could.steps_per_s)
    return min(1.0, median(shares)) if shares else EFFICIENCY


@dataclass(frozen=True, kw_only=True)
class GpuFit:
    """Fit of a job to one kind of GPU. Times are estimates by roofline, not measurements."""

    gpu: str
    memory_gb: float
    strategy: str
    """Strategy that the training would choose there."""
    needed_gb: float
    """Memory in GB for all of a rank's share of the batch at once."""
    min_gb: float
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
    found: list[GpuFit] = []
    for name, size_gb in kinds:
        if not (steps := chosen_workloads(workloads, spec, size_gb)):
            continue
        holds = not is_too_small(workloads, spec, size_gb)
        speed = roofline(workloads, spec, name, size_gb, efficiency) if holds else None
        step_s = None if speed is None else 1 / speed.steps_per_s
        fit = GpuFit(
            gpu=name,
            memory_gb=size_gb,
            strategy=steps[0].strategy,
            needed_gb=needed_gb(steps[0], spec.world_size),
            min_gb=needed_gb(steps[-1], spec.world_size),
            windows=largest_that_fits(workloads, spec, size_gb) if holds else None,
            step_s=step_s,
            train_s=None if step_s is None else step_s * program_of(spec).total_steps,
            mfu=None if speed is None else speed.mfu,
        )
        found.append(fit)
    return Fit(
        world_size=spec.world_size,
        steps=program_of(spec).total_steps,
        workloads=workloads,
        efficiency=efficiency,
        gpus=tuple(sorted(found, key=lambda gpu: (gpu.windows is None, gpu.step_s or gpu.min_gb))),
    )


def _sizes_gb(name: str) -> tuple[int, ...]:
    peak = peak_of(name)
    if peak is None:
        raise KeyError(name)
    return peak.sizes_gb
