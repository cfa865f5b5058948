"""Group: the device, process groups, votes and shards of a rank.

No collective is in an `except`, a `finally`, a signal handler or an `if rank == 0`: a rank that fails exits,
and its supervisor ends the others.
"""

import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from vastrun.contract.job import Job
from vastrun.trainer.distributed.rank import Rank
from vastrun.trainer.errors import DeviceError

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}

# The supervisor ends a rank that makes no progress, and knows which. These timeouts are longer than its own,
# for ranks whose supervisor is gone.
_SUPERVISOR_MARGIN_S = 60.0

_LISTEN_TIMEOUT_S = 30.0

# In a vote each rank waits for the last one, some milliseconds on shared cores. One vote a second stops soon
# enough.
VOTE_INTERVAL_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The process groups of this rank. All ranks must call the same methods in the same order."""

    rank: Rank
    device: torch.device
    control: torch_dist.ProcessGroup
    """A gloo group for votes only, so that they never mix with the collectives of the training."""

    @property
    def is_single(self) -> bool:
        """Tell whether there is no other rank: nothing is sent then."""
        return self.rank.world_size == 1

    def mean(self, *values: Tensor) -> Tensor:
        """Return the mean of each number over all ranks: a vector on the device, without waiting for it."""
        packed = torch.cat([value.reshape(-1) for value in values])
        if self.is_single:
            return packed
        torch_dist.all_reduce(packed)
        return packed.div_(self.rank.world_size)

    def mean_of(self, *values: Tensor) -> list[float]:
        """Return the mean of each number over all ranks. Waits for the device."""
        means = self.mean(*values)
        if self.device.type == "cuda":
            # Where a rank waits here, its stack says that it waits for its GPU, and so for the others.
            torch.cuda.current_stream(self.device).synchronize()
        return means.tolist()

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return `values`, a tensor on the CPU, summed over all ranks in place."""
        torch_dist.all_reduce(values, group=self.control)
        return values

    def all_reduce_max(self, *values: float) -> list[float]:
        """Return the highest of each value over all ranks."""
        if self.is_single:
            return list(values)
        votes = torch.tensor(values, dtype=torch.float64)
        torch_dist.all_reduce(votes, torch_dist.ReduceOp.MAX, group=self.control)
        return votes.tolist()

    def broadcast_object(self, value: Any) -> Any:
        """Return the value of rank 0, on all ranks. It is pickled."""
        return broadcast_object(value, self.control)

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank, on all ranks. They are pickled."""
        values = [None] * self.rank.world_size
        torch_dist.all_gather_object(values, value, group=self.control)
        return values

    def wait_for_all(self) -> None:
        """Wait until all ranks have called this."""
        self.all_reduce_max(0.0)


def broadcast_object(value: Any, group: torch_dist.ProcessGroup | None) -> Any:
    """Return the value of rank 0, on all ranks of the group. It is pickled."""
    values = [value]
    torch_dist.broadcast_object_list(values, group=group, group_src=0)
    return values[0]


def join(rank: Rank, job: Job) -> Ranks:
    """Set this rank's device and join its process groups: NCCL on GPUs, gloo on CPUs.

    Raises DeviceError; RuntimeError when a rank is missing after the timeout.
    """
    limit = timedelta(seconds=job.max_activity_s + _SUPERVISOR_MARGIN_S)
    device = device_of(rank.local_rank, gpus=job.gpus)
    if not rank.is_first:
        _wait_for_first_rank(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    # With `device_id` NCCL connects now, so that a bad host fails here and not in the first step.
    torch_dist.init_process_group(
        BACKENDS[device.type], timeout=limit, device_id=device if device.type == "cuda" else None
    )
    world = torch_dist.group.WORLD
    assert world is not None
    gloo = world if device.type == "cpu" else torch_dist.new_group(backend="gloo", timeout=limit)
    # NCCL would wait silently for a missing rank; this names it.
    torch_dist.monitored_barrier(gloo, limit, wait_all_ranks=True)
    control = torch_dist.new_group(backend="gloo", timeout=limit) if gloo is world else gloo
    return Ranks(rank=rank, device=device, control=control)


def _wait_for_first_rank(host: str, port: int) -> None:
    """Wait until rank 0 listens, or until a timeout, after which torch reports the failure."""
    until = time.monotonic() + _LISTEN_TIMEOUT_S
    while time.monotonic() < until:
        with suppress(OSError):
            socket.create_connection((host, port), timeout=_LISTEN_TIMEOUT_S).close()
            return
        time.sleep(0.01)  # torch would retry only after half a second


def device_of(local_rank: int, *, gpus: int) -> torch.device:
    """Return the device of a rank: its GPU when the job has any, else the CPU. Raises DeviceError."""
    if not gpus:
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if local_rank >= seen:
        raise DeviceError(f"GPU {local_rank} is needed, but torch {torch.__version__} sees only {seen} GPUs")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


class StopVote:
    """A vote of all ranks on whether to stop, about once a second for any length of a step.

    The ranks also agree on the step time of the slowest of them, and so on the step of the next vote.
    """

    def __init__(self, ranks: Ranks, step: int) -> None:
        self._ranks = ranks
        self._step = step
        self._due = step + 1
        self._at = time.monotonic()

    def passes(self, step: int, asked: bool) -> bool:
        """Return True on all ranks, after the same step, when one of them was asked to stop."""
        # All ranks have the same `_due`, which follows from the results of the last vote.
        if step < self._due:
            return False
        seconds = (time.monotonic() - self._at) / (step - self._step)
        stop, slowest = self._ranks.all_reduce_max(float(asked), seconds)
        self._step, self._at = step, time.monotonic()
        self._due = step + max(1, int(VOTE_INTERVAL_S / max(slowest, 1e-6)))
        return stop > 0


@torch.no_grad()
def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return this rank's part of each tensor, in the same memory; all of it if it is not sharded."""
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def reshard(model: nn.Module) -> None:
    """Free the gathered weights that a forward pass without a backward pass left on this rank.

    They are separate tensors from the optimiser's parameters, and would keep the old values.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
