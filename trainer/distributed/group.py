"""Group: the device and the process groups of a rank, made in their one right order, and votes between ranks.

No collective is in an `except`, a `finally`, a signal handler or an `if rank == 0`: a rank that fails ends,
and the supervisor that started it ends the others.
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.contract import layout
from vastrun.contract.errors import DeviceError
from vastrun.trainer.distributed.clock import StepClock
from vastrun.trainer.distributed.rank import Rank, TrainJob

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}

# The supervisor ends a rank that makes no progress, and knows which. These limits come after its own, for
# ranks that nobody supervises any more.
_AFTER_SUPERVISOR_S = 60.0

# A rank that comes before rank 0 finds nobody at its port: torch would ask again half a second later.
_ASK_AGAIN_S = 0.01
_LISTENS_S = 30.0

# In a vote each rank waits for the last one, some milliseconds where other programs share their cores. One a
# second is soon enough to stop.
VOTE_EVERY_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The process groups of this rank. All ranks must call the same methods in the same order."""

    rank: Rank
    device: torch.device
    control: torch_dist.ProcessGroup
    """A gloo group for votes only, so that they never mix with the collectives of the training."""

    @property
    def are_one(self) -> bool:
        """Tell whether there is no other rank: nothing is sent then."""
        return self.rank.world_size == 1

    def mean(self, *values: Tensor) -> Tensor:
        """Return the mean of each number over all ranks: a vector on the device, without waiting for it."""
        packed = torch.cat([value.reshape(-1) for value in values])
        if self.are_one:
            return packed
        torch_dist.all_reduce(packed)
        return packed.div_(self.rank.world_size)

    def mean_of(self, *values: Tensor) -> list[float]:
        """Return the mean of each number over all ranks. Waits for the device."""
        return self.mean(*values).tolist()

    def all_reduce_sum(self, values: Tensor) -> Tensor:
        """Return `values`, a tensor on the CPU, summed over all ranks in place."""
        torch_dist.all_reduce(values, group=self.control)
        return values

    def all_reduce_max(self, *values: float) -> list[float]:
        """Return the highest of each value over all ranks."""
        if self.are_one:
            return list(values)
        votes = torch.tensor(values, dtype=torch.float64)
        torch_dist.all_reduce(votes, torch_dist.ReduceOp.MAX, group=self.control)
        return votes.tolist()

    def broadcast_object(self, value: Any) -> Any:
        """Return the value of rank 0, on all ranks. It is pickled."""
        values = [value]
        torch_dist.broadcast_object_list(values, group=self.control, group_src=0)
        return values[0]

    def all_gather_objects(self, value: Any) -> list[Any]:
        """Return the values of all ranks, by rank, on all ranks. They are pickled."""
        values = [None] * self.rank.world_size
        torch_dist.all_gather_object(values, value, group=self.control)
        return values

    def wait_for_all(self) -> None:
        """Return when all ranks have called this."""
        self.all_reduce_max(0.0)


def join(rank: Rank, job: TrainJob) -> Ranks:
    """Take this rank's device and join its process groups: NCCL on GPUs, gloo on CPUs, never another.

    Raises DeviceError; RuntimeError when a rank is missing after the time limit.
    """
    limit = timedelta(seconds=job.longest_stage_s + _AFTER_SUPERVISOR_S)
    device = device_of(rank.local_rank, gpus=job.gpus)
    if rank.node is None and not rank.is_first:
        _await_first(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    # With `device_id` NCCL connects now, so that a bad host shows here and not in the first step.
    torch_dist.init_process_group(
        BACKENDS[device.type],
        timeout=limit,
        device_id=device if device.type == "cuda" else None,
        **({} if rank.node is None else _of_this_node(rank)),
    )
    world = torch_dist.group.WORLD
    assert world is not None
    gloo = world if device.type == "cpu" else torch_dist.new_group(backend="gloo", timeout=limit)
    # For a rank that is missing NCCL would wait without a word; this names it.
    torch_dist.monitored_barrier(gloo, limit, wait_all_ranks=True)
    control = torch_dist.new_group(backend="gloo", timeout=limit) if gloo is world else gloo
    return Ranks(rank=rank, device=device, control=control)


def _await_first(host: str, port: int) -> None:
    """Return when rank 0 listens there; after a while also when it does not, which torch then says."""
    until = time.monotonic() + _LISTENS_S
    while time.monotonic() < until:
        with suppress(OSError):
            socket.create_connection((host, port), timeout=_LISTENS_S).close()
            return
        time.sleep(_ASK_AGAIN_S)


def _of_this_node(rank: Rank) -> dict[str, Any]:
    """Let the ranks of this node meet in a file: no other node takes part, nor can end them."""
    # Of this start: the folder is put aside before another.
    path = rank.box / layout.RANKS / "store"
    path.parent.mkdir(parents=True, exist_ok=True)
    store = torch_dist.FileStore(str(path), rank.world_size)
    return {"store": store, "rank": rank.rank, "world_size": rank.world_size}


def device_of(local_rank: int, *, gpus: int) -> torch.device:
    """Return the device of a rank: its own GPU when the job has any, else the CPU. Raises DeviceError."""
    if not gpus:
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if local_rank >= seen:
        raise DeviceError(f"GPU {local_rank} is needed, but torch {torch.__version__} sees {seen} of them")
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


class StopVote:
    """A vote of all ranks on whether to stop, held once a second however long a step takes.

    The ranks also agree on how long a step takes on the slowest of them, and so on the step of the next vote.
    Each reports how long it worked before it had to wait for others: a rank that is always late is named.
    """

    def __init__(self, ranks: Ranks, step: int, clock: StepClock) -> None:
        self._ranks = ranks
        self._clock = clock
        self._stragglers = Stragglers()
        self._step = step
        self._due = step + 1
        self._at = time.monotonic()

    def passes(self, step: int, asked: bool) -> bool:
        """Return True on all ranks, after the same step, when one of them was asked to stop."""
        # All ranks have the same `_due`: it follows from numbers on which the last vote made them agree.
        if step < self._due:
            return False
        seconds = (time.monotonic() - self._at) / (step - self._step)
        stop, slowest, *alone_s = self._ranks.all_reduce_max(float(asked), seconds, *self._alone_s())
        self._step, self._at = step, time.monotonic()
        self._due = step + max(1, int(VOTE_EVERY_S / max(slowest, 1e-6)))
        news = self._stragglers.see(alone_s, slowest)
        if news and self._ranks.rank.is_first:
            print(news, flush=True)
        return stop > 0

    def _alone_s(self) -> list[float]:
        """Return this rank's seconds in its own place, 0 in the others: `highest` then gathers them all."""
        rank = self._ranks.rank
        return [self._clock.alone_s() if place == rank.rank else 0.0 for place in range(rank.world_size)]


_VOTES = 50
"""The votes that are remembered, the last ones."""
_FEWEST_VOTES = 10
"""No rank is named before so many votes."""
_NAMED_FROM = 0.8
"""A rank is named when it was the last in more than this share of the votes."""
_FORGIVEN_BELOW = 0.5
"""A rank that was named counts as recovered when it was the last in less than this share."""
_WORTH = 0.02
"""Share of a step: to wait for less is noise, and costs nothing."""


class Stragglers:
    """Finds the rank for which the others wait in nearly every vote."""

    def __init__(self) -> None:
        self._last: deque[int | None] = deque(maxlen=_VOTES)
        self._wait_s: deque[float] = deque(maxlen=_VOTES)
        self._named: int | None = None

    def see(self, alone_s: Sequence[float], step_s: float) -> str | None:
        """Count one vote: the seconds alone by rank, and of a step. Return a line that names a slow rank.

        None: nothing is new. A rank is named once, and again only when it was not the slow one in between.
        """
        # The gap is what would be won if the last rank were no slower than the last but one.
        *others, last_s = sorted(alone_s)
        wait_s = last_s - others[-1] if others else 0.0
        self._last.append(alone_s.index(last_s) if wait_s > _WORTH * step_s else None)
        self._wait_s.append(wait_s)
        # A vote in which nobody was late counts as None, which may win, too: then there is no straggler.
        rank, times = Counter(self._last).most_common(1)[0]
        share = times / len(self._last)
        if self._named is not None and (rank != self._named or share < _FORGIVEN_BELOW):
            self._named = None
        if rank is None or rank == self._named or len(self._last) < _FEWEST_VOTES or share <= _NAMED_FROM:
            return None
        self._named = rank
        mean_ms = 1000 * sum(self._wait_s) / len(self._wait_s)
        return (
            f"rank {rank} is slow: the others wait {mean_ms:.0f} ms a step for it ({share:.0%} of the votes)"
        )
