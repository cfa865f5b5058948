"""Out-of-memory vote: all ranks learn that one of them ran out of memory, and none waits for it forever."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable

import torch
from torch import Tensor

from vastrun.trainer.distributed.exit import is_out_of_memory
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.plan import largest_divisor
from vastrun.trainer.engine.session import Session
from vastrun.trainer.strategies.strategy import OomVote

_GIB = 1 << 30


class OutOfMemoryVote(Exception):
    """Raised on all ranks, at the same vote, when one of them ran out of memory."""

    def __init__(self, rank: int) -> None:
        super().__init__(f"rank {rank} is out of memory")
        self.rank = rank


def run_with_oom_vote(ranks: Ranks, work: Callable[[OomVote], Tensor]) -> Tensor:
    """Return the result of `work` when no rank runs out of memory. Raises OutOfMemoryVote.

    All ranks do the same work, which votes before each message to the others. So the votes of all ranks pair
    up one by one, and the vote of a rank that failed pairs with the next vote of the others: they never send
    that message.
    """

    def vote(*, out_of_memory: bool = False) -> None:
        [first] = ranks.all_reduce_max(float(ranks.rank.rank + 1 if out_of_memory else 0))
        if first:
            raise OutOfMemoryVote(int(first) - 1)

    try:
        value = work(vote)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        value = None
    # Not in the `except`: a vote does not belong there, and the traceback holds the activations.
    vote(out_of_memory=value is None)
    assert value is not None
    return value


def shrink_micro_batch(session: Session, failed_rank: int) -> Session:
    """Return the session with half of its micro-batch, or the next smaller one that divides a rank's share.

    Raises torch.OutOfMemoryError when `failed_rank` has no room for a single window.
    """
    # First: the message below reports the free memory.
    free_memory(session)
    size = session.plan.micro_batch
    if size == 1:
        raise torch.OutOfMemoryError(
            f"rank {failed_rank} has no room for a single window next to weights, gradients and optimiser; "
            f"rank {session.ranks.rank.rank} has {_free_memory_text(session.ranks.device)}"
        )
    if session.ranks.rank.is_first:
        print(f"out of memory: {size} windows at once are too many for rank {failed_rank}", flush=True)
    return session.with_micro_batch(largest_divisor(session.plan.share, size // 2))


def free_memory(session: Session) -> None:
    """Release the memory that a failed attempt left allocated."""
    session.optimizer.zero_grad()
    gc.collect()
    if session.ranks.device.type == "cuda":
        torch.cuda.empty_cache()


def _free_memory_text(device: torch.device) -> str:
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
    else:
        free, total = (
            os.sysconf("SC_PAGE_SIZE") * os.sysconf(f"SC_{kind}_PAGES") for kind in ("AVPHYS", "PHYS")
        )
    return f"{free / _GIB:.1f} GiB of {total / _GIB:.1f} GiB left"
