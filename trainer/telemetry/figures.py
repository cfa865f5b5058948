"""Figures: measure a training on the host without waiting for the device; on rank 0, for every report."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import torch

from vastrun.contract.gpus import peak_of
from vastrun.trainer import stages
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.clock import StepTimes
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.engine.session import Session
from vastrun.trainer.telemetry.flops import training_flops
from vastrun.trainer.telemetry.gpus import GpuFigures, GpuWatch


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The figures of a report besides the loss. None: unknown."""

    lr: float
    times: StepTimes | None = None
    memory: RankMemory | None = None
    gpus: GpuFigures | None = None


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """The speed of the training between two reports, by the time of the device."""

    samples_per_s: float
    """Samples of all ranks."""
    mfu: float | None = None
    """Model FLOP utilisation: the model's operations as a share of the GPUs' peak."""


class Instruments:
    """The instruments of a report. `began_s`: time at which the first step could start, in seconds."""

    def __init__(self, session: Session, began_s: float) -> None:
        self._session = session
        self._step, self._at_s = session.start, began_s
        self._memory = MemoryWatch(session.ranks.device)
        self._gpus: GpuWatch | None = None
        self._max_per_s: float | None = None
        if session.ranks.device.type == "cuda":
            self._gpus = GpuWatch(uuids_in_use(session.ranks.rank))
            self._max_per_s = max_samples_per_s(session, torch.cuda.get_device_name(session.ranks.device))

    def read(self, step: int) -> Figures:
        """Read the figures after `step` steps."""
        return Figures(
            lr=self._session.schedule.rate(step - 1),
            times=self._session.clock.look(),
            memory=self._memory.look(),
            gpus=self._gpus.look() if self._gpus else None,
        )

    def throughput(self, step: int, at_s: float) -> Throughput:
        """Return the throughput since the last call; the device had done `step` steps at `at_s`."""
        samples = (step - self._step) * self._session.task_schedule.samples
        rate = samples / max(at_s - self._at_s, 1e-9)
        self._step, self._at_s = step, at_s
        return Throughput(samples_per_s=rate, mfu=rate / self._max_per_s if self._max_per_s else None)


def max_samples_per_s(session: Session, gpu: str) -> float | None:
    """Return the throughput at the peak of these GPUs; None: their peak is unknown."""
    peak = peak_of(gpu)
    if peak is None:
        return None
    cycle = session.task_schedule.mix.cycle
    per_sample = sum(_flops_of(session, task) for task in cycle) / len(cycle)
    return session.plan.world_size * peak.flops_per_s(session.plan.precision) / per_sample


def _flops_of(session: Session, task: int) -> float:
    """Count the FLOPs of one sample of a task, forward and backward."""
    size, space = session.plan.micro_batch, session.task_schedule.sample_plans[task].space
    with torch.device("meta"):
        objective = stages.make(session.config, session.operator.domains)
        windows = Windows(
            fields=torch.empty(size, space.unroll + 1, space.channels, *space.grid),
            noise=torch.empty(size, space.channels, *space.grid),
            level=torch.empty(size),
            conditions=torch.empty(size, session.operator.domains[task].conditions),
            task=task,
        )
    return training_flops(objective, windows) / size


def uuids_in_use(rank: Rank) -> list[str]:
    """Return the UUIDs of the GPUs of this machine's ranks, for NVML; the machine may have more."""
    devices = range(min(torch.cuda.device_count(), rank.local_world_size or rank.world_size))
    return [f"GPU-{torch.cuda.get_device_properties(device).uuid}" for device in devices]


_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Memory use since the start of this rank."""

    peak_memory_mib: float
    """Peak of tensors on the GPU; without a GPU, of the process."""
    alloc_retries: int | None = None
    """Number of times that the allocator freed cached memory and retried, which waits for the GPU."""


class MemoryWatch:
    """Reads the memory use, and prints a line when memory becomes short."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._retries = 0

    def look(self) -> RankMemory:
        if self._device.type == "cpu":
            return RankMemory(peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        retries = torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0)
        if retries > self._retries == 0:
            print("the memory of this GPU is nearly full, which slows the steps down", flush=True)
        self._retries = retries
        peak = torch.cuda.max_memory_allocated(self._device)
        return RankMemory(peak_memory_mib=peak / _MIB, alloc_retries=retries)
