"""Workload: the cost of a step of a program, as a kind of programs estimates it. Standard library only.

The launcher computes from it which GPUs hold a job, and how fast they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from vastrun.contract.limits import Ge, Le, MaxLen, MinLen

WRONG_MODEL = 2
"""Exit code of an estimate for a model of the user's code that cannot be trained on any computer."""

Bytes = Annotated[int, Ge(0), Le(1 << 60)]
Amount = Annotated[float, Ge(0), Le(1e24)]


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
