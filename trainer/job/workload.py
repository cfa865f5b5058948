"""Workload: estimate of a step's memory and operations on one rank, and the strategy for it. No torch: the
launcher imports it.

`python -m vastrun.trainer.workload` reads a `WorkloadQuery` from its standard input and writes `Workloads`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastrun.contract.limits import Ge, Le, MaxLen, MinLen
from vastrun.trainer.job.config import TrainConfig

WRONG_MODEL = 2
"""Exit code of that program for a model of the user's code that cannot be trained on any computer."""

Bytes = Annotated[int, Ge(0), Le(1 << 60)]
Amount = Annotated[float, Ge(0), Le(1e24)]
# Weight, gradient and AdamW's two moments in fp32; an average is one more.
_BYTES_PER_PARAMETER = 16
_BYTES_OF_AVERAGE = 4

# Activations need the rest. A user who knows better sets the strategy.
_SHARE_OF_STATE = 0.5


# Bytes of the smallest and the largest GPU that a rank may get.
_MIN_GPU_BYTES, _MAX_GPU_BYTES = 4 * 10**9, 10**12


@dataclass(frozen=True, kw_only=True)
class WorkloadQuery:
    """The input of the estimate."""

    train: TrainConfig
    world_size: int
    gpus: bool
    """True when the ranks have GPUs."""
    code: str | None = None
    """Folder of the user's code on this computer, for a model in it; None: the model is built in."""


@dataclass(frozen=True, kw_only=True)
class PeakBytes:
    """The tensors of one rank at peak memory, by their use."""

    parameters: Bytes
    """This rank's part, with buffers and the running average."""
    gradients: Bytes
    optimiser: Bytes
    activations: Bytes
    """Tensors for the backward pass, its temporaries, and weights that are gathered while they are used."""
    other: Bytes
    """Trajectories that are kept on the device; on a GPU, also the workspaces of its libraries."""

    @property
    def total(self) -> int:
        """Bytes of all tensors at that moment."""
        return self.parameters + self.gradients + self.optimiser + self.activations + self.other


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The cost of one optimiser step on one rank, for one strategy and one micro-batch."""

    strategy: Annotated[str, MaxLen(16)]
    micro_batch: Annotated[int, Ge(1), Le(1 << 40)]
    """Windows that are computed at once."""
    flops: Amount
    """Floating-point operations of a step: matrix products, attention and Fourier transforms, including those
    that activation checkpointing repeats."""
    traffic_bytes: Amount
    """Bytes that the operations of a step read and write, summed over the operations."""
    operations: Annotated[int, Ge(0), Le(1 << 40)]
    """Number of operations that are launched one by one."""
    peak: PeakBytes


@dataclass(frozen=True, kw_only=True)
class Workloads:
    """The output of the estimate."""

    parameters: Annotated[int, Ge(0), Le(1 << 50)]
    """Parameters of the whole model."""
    workloads: Annotated[tuple[Workload, ...], MinLen(1), MaxLen(16)]
    """Estimates sorted by strategy, and within each by micro-batch, the largest first."""
    torch: Annotated[str, MaxLen(64)]
    seconds: Annotated[float, Ge(0), Le(1e6)]
    """Duration of the estimate."""

    def of(self, strategy: str) -> list[Workload]:
        """Return the workloads of a strategy, the largest micro-batch first."""
        return [workload for workload in self.workloads if workload.strategy == strategy]


def strategies_of(config: TrainConfig, world_size: int, parameters: int, *, gpus: bool) -> tuple[str, ...]:
    """Return the possible strategies of this job, over all GPU memory sizes."""
    if config.strategy == "auto" and world_size > 1 and config.out_of_memory == "retry":
        # A retried step runs on the unwrapped model, which fsdp2 does not provide.
        return ("ddp",)
    memories = (_MAX_GPU_BYTES, _MIN_GPU_BYTES) if gpus else (None,)
    chosen = [
        strategy_for(config, world_size=world_size, parameters=parameters, memory=memory)[0]
        for memory in memories
    ]
    return tuple(dict.fromkeys(chosen))


def strategy_for(
    config: TrainConfig, *, world_size: int, parameters: int, memory: int | None
) -> tuple[str, str]:
    """Return the strategy and the reason for it. `memory`: bytes of each rank's GPU; None on CPUs."""
    if config.strategy != "auto":
        return config.strategy, "set in the job file"
    if world_size == 1:
        return "single", "one rank"
    if memory is None:
        return "ddp", "on CPUs every rank holds the whole model"
    per_parameter = _BYTES_PER_PARAMETER + (_BYTES_OF_AVERAGE if config.ema else 0)
    needed, available = parameters * per_parameter / 2**30, memory / 2**30
    reason = f"weights, gradients and optimiser need {needed:.1f} of a GPU's {available:.0f} GiB"
    return ("ddp" if needed <= _SHARE_OF_STATE * available else "fsdp2"), reason
