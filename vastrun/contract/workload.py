"""Workload: what a step takes of one rank, foretold without a GPU. No torch: the launcher reads it.

`python -m vastrun.trainer.workload` reads a `WorkloadQuery` from its standard input and writes `Workloads`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastrun.contract.config import TrainConfig
from vastrun.contract.limits import Ge, Le, MaxLen, MinLen

Bytes = Annotated[int, Ge(0), Le(1 << 60)]
Amount = Annotated[float, Ge(0), Le(1e24)]


@dataclass(frozen=True, kw_only=True)
class Room:
    """What a rank's GPU has room for."""

    gpu_bytes: Bytes
    """All of its memory: the strategy follows from it."""
    tensor_bytes: Bytes
    """What tensors may take of it."""


@dataclass(frozen=True, kw_only=True)
class WorkloadQuery:
    """What is asked for."""

    train: TrainConfig
    world_size: int
    gpus: bool
    """The ranks have GPUs."""
    room: Room | None = None
    """Of each rank, where `train.batch` is `auto`: it becomes the largest whose tensors find room there, with
    all of a rank's share at once. The answer is then that of the job with this batch."""


@dataclass(frozen=True, kw_only=True)
class PeakBytes:
    """The tensors of one rank at the moment when they take most, by what they are for."""

    parameters: Bytes
    """This rank's part, with buffers and the running average."""
    gradients: Bytes
    optimiser: Bytes
    activations: Bytes
    """Kept for the backward pass, what it makes meanwhile, and weights that are whole while they are used."""
    other: Bytes
    """Trajectories that are kept on the device; on a GPU, also the workspaces of its libraries."""

    @property
    def total(self) -> int:
        """Bytes of all tensors at that moment."""
        return self.parameters + self.gradients + self.optimiser + self.activations + self.other


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What one optimiser step takes of one rank, for one strategy and one micro-batch."""

    strategy: Annotated[str, MaxLen(16)]
    micro_batch: Annotated[int, Ge(1), Le(1 << 40)]
    """Windows at once."""
    flops: Amount
    """Floating-point operations of a step: matrix products, attention and Fourier transforms, with those that
    activation checkpointing does twice."""
    traffic_bytes: Amount
    """What the operations of a step read and write, each by itself."""
    operations: Annotated[int, Ge(0), Le(1 << 40)]
    """So many are started one by one."""
    peak: PeakBytes


@dataclass(frozen=True, kw_only=True)
class Workloads:
    """The answer."""

    parameters: Annotated[int, Ge(0), Le(1 << 50)]
    """Of the whole model."""
    workloads: Annotated[tuple[Workload, ...], MinLen(1), MaxLen(16)]
    """By strategy, and for each by micro-batch, the largest first."""
    torch: Annotated[str, MaxLen(64)]
    seconds: Annotated[float, Ge(0), Le(1e6)]
    """That it took to find out."""

    def of(self, strategy: str) -> list[Workload]:
        """Return those of a strategy, the largest micro-batch first."""
        return [workload for workload in self.workloads if workload.strategy == strategy]
