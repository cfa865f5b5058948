"""Retry: when a rank runs out of memory, all ranks repeat the step with smaller micro-batches.

Gradients are exchanged only when all ranks have computed theirs, so that a failed rank leaves no other rank
waiting. This costs one vote per step, and no message is sent during a backward pass.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.contract.heartbeat import Heartbeat
from vastrun.trainer.distributed.exit import is_out_of_memory
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.plan import largest_divisor
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.step import StepOutput, forward_backward, micro_batches, optimizer_step
from vastrun.trainer.strategies.strategy import OomVote

_BUCKET_BYTES = 25 << 20
"""Bytes of gradients per all-reduce."""
_GIB = 1 << 30


def train_step_with_oom_retry(session: Session, step: int, heart: Heartbeat) -> tuple[Session, StepOutput]:
    """Train one step as `train_step` does, in micro-batches that fit; return the session with that size.

    A rank that runs out of memory in the optimiser step itself fails.
    """
    while True:
        losses = _losses_or_failed_rank(session, step, heart)
        if isinstance(losses, Tensor):
            break
        session = shrink_micro_batch(session, losses)
        session.write_plan()
    all_reduce_gradients(session)
    return session, (losses, optimizer_step(session, step, heart))


def _losses_or_failed_rank(session: Session, step: int, heart: Heartbeat) -> Tensor | int:
    try:
        return run_with_oom_vote(
            session.ranks,
            lambda _: forward_backward(session, step, micro_batches(session, step, heart), heart),
        )
    except OutOfMemoryVote as error:
        return error.rank


@torch.no_grad()
def all_reduce_gradients(session: Session) -> None:
    """Average the gradients over all ranks, for a model without a distributed wrapper."""
    world_size = session.plan.world_size
    if world_size == 1:
        return
    for bucket in _buckets(p.grad for p in session.model.parameters() if p.grad is not None):
        flat = torch.cat([gradient.flatten() for gradient in bucket]).mul_(1 / world_size)
        torch_dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def _buckets(gradients: Iterable[Tensor]) -> Iterator[list[Tensor]]:
    """Group gradients into buckets: large messages, whose copies still fit into memory."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        if bucket and sum(tensor.nbytes for tensor in [*bucket, gradient]) > _BUCKET_BYTES:
            yield bucket
            bucket = []
        bucket.append(gradient)
    if bucket:
        yield bucket


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
