"""Do what may be too much for the memory of a rank: all learn of it by a vote, none waits for another."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import torch
from torch import Tensor

from vastrun.trainer.distributed.exit import is_out_of_memory
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.plan import fitting
from vastrun.trainer.engine.session import Session
from vastrun.trainer.strategies.strategy import Ask

_GIB = 1 << 30


class OutOfMemoryVote(Exception):
    """A rank ran out of memory: raised on all ranks, at the same vote."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"rank {rank} is out of memory")
        self.rank = rank


def run_with_oom_vote(ranks: Ranks, work: Callable[[Ask], Tensor]) -> Tensor:
    """Return what `work` gives, where no rank runs out of memory. Raises OutOfMemoryVote.

    All ranks do the same work, which asks before each message to others. So the votes of all ranks meet one
    by one, and that of a rank that has failed meets the next one of the others: they never send that message.
    """

    def ask(*, short: bool = False) -> None:
        [first] = ranks.all_reduce_max(float(ranks.rank.rank + 1 if short else 0))
        if first:
            raise OutOfMemoryVote(int(first) - 1)

    try:
        value = work(ask)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        value = None
    # Not in the `except`: a vote does not belong there, and the traceback holds the activations.
    ask(short=value is None)
    assert value is not None
    return value


def with_less(session: Session, short: int) -> Session:
    """Return the session with half of its micro-batch, or the next smaller one that divides a rank's share.

    Raises torch.OutOfMemoryError when rank `short` has no room for a single window.
    """
    # First of all: the message below tells how much is free.
    release(session)
    size = session.plan.micro_batch
    if size == 1:
        raise torch.OutOfMemoryError(
            f"rank {short} has no room for a single window beside weights, gradients and optimiser; "
            f"rank {session.ranks.rank.rank} has {_room(session.ranks.device)}"
        )
    if session.ranks.rank.is_first:
        print(f"out of memory: {size} windows at once are too many for rank {short}", flush=True)
    return session.with_micro_batch(fitting(session.plan.share, size // 2))


def release(session: Session) -> None:
    """Give the device back what a failed try left."""
    session.optimizer.zero_grad()
    gc.collect()
    if session.ranks.device.type == "cuda":
        torch.cuda.empty_cache()


def _room(device: torch.device) -> str:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
    else:
        free, total = (
            os.sysconf("SC_PAGE_SIZE") * os.sysconf(f"SC_{kind}_PAGES") for kind in ("AVPHYS", "PHYS")
        )
    return f"{free / _GIB:.1f} GiB of {total / _GIB:.1f} GiB left"
