"""Figures: measure a training on the host without waiting for the device; on rank 0, for every report."""

from __future__ import annotations

import math
import resource
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import (
    FlopCounterMode,
    flop_registry,
    sdpa_backward_flop_count,
    sdpa_flop_count,
    shape_wrapper,
)

from vastrun.contract.gpus import peak_of
from vastrun.trainer import stages
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.clock import StepTimes
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.engine.session import Session
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
        self._retries = 0
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
            memory=self._read_memory(),
            gpus=self._gpus.look() if self._gpus else None,
        )

    def _read_memory(self) -> RankMemory:
        """Read the memory use, and print a line when memory becomes short."""
        device = self._session.ranks.device
        if device.type == "cpu":
            return RankMemory(peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        retries = torch.cuda.memory_stats(device).get("num_alloc_retries", 0)
        if retries > self._retries == 0:
            print("the memory of this GPU is nearly full, which slows the steps down", flush=True)
        self._retries = retries
        peak = torch.cuda.max_memory_allocated(device)
        return RankMemory(peak_memory_mib=peak / (1 << 20), alloc_retries=retries)

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


def training_flops(objective: nn.Module, windows: Windows) -> float:
    """Count forward and backward of these windows. Both are on the meta device: shapes are enough.

    Pass the unwrapped model: operations that a strategy repeats to save memory do not count.
    """
    with counting_flops() as counter:
        objective(windows)[0].backward()
    return float(counter.get_total_flops())


def counting_flops() -> FlopCounterMode:
    """Return a counter of matrix products, attention on any device, and Fourier transforms."""
    return FlopCounterMode(display=False, custom_mapping={**_FFT, **_ATTENTION_ON_CPUS})


def flops_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> int:
    """Count one operation like `counting_flops`, which would keep the tensors alive."""
    packet = func._overloadpacket
    if packet in _WRAPPED:
        return int(_WRAPPED[packet](*args, **kwargs, out_val=result))
    return int(flop_registry[packet](*args, **kwargs, out_val=result)) if packet in flop_registry else 0


# Torch's counter supports matrix products, convolutions and attention on GPUs.
def _of_complex(shape: Sequence[int], dims: Sequence[int], *_: Any, **__: Any) -> int:
    """Count 5 n log2(n) for a transform of n points (Cooley and Tukey)."""
    points = math.prod(shape[dim] for dim in dims)
    return int(5 * math.prod(shape) * math.log2(max(2, points)))


_FFT: dict[Any, Callable[..., int]] = {
    torch.ops.aten._fft_c2c: _of_complex,
    # A real transform takes half the operations of a complex one.
    torch.ops.aten._fft_r2c: lambda shape, dims, *_, **__: _of_complex(shape, dims) // 2,
    torch.ops.aten._fft_c2r: lambda _, dims, *__, out_shape, **___: _of_complex(out_shape, dims) // 2,
}
_ATTENTION_ON_CPUS: dict[Any, Callable[..., int]] = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: (
        lambda query, key, value, *_, **__: int(sdpa_flop_count(query, key, value))
    ),
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: (
        lambda grad, query, key, value, *_, **__: int(sdpa_backward_flop_count(grad, query, key, value))
    ),
}
_WRAPPED = {packet: shape_wrapper(count) for packet, count in {**_FFT, **_ATTENTION_ON_CPUS}.items()}


def uuids_in_use(rank: Rank) -> list[str]:
    """Return the UUIDs of the GPUs of this machine's ranks, for NVML; the machine may have more."""
    devices = range(min(torch.cuda.device_count(), rank.local_world_size or rank.world_size))
    return [f"GPU-{torch.cuda.get_device_properties(device).uuid}" for device in devices]


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Memory use since the start of this rank."""

    peak_memory_mib: float
    """Peak of tensors on the GPU; without a GPU, of the process."""
    alloc_retries: int | None = None
    """Number of times that the allocator freed cached memory and retried, which waits for the GPU."""
