"""Retry: when a rank runs out of memory, all ranks repeat the step with smaller micro-batches.

Gradients are exchanged only when all ranks have computed theirs, so that a failed rank leaves no other rank
waiting. This costs one vote per step, and no message is sent during a backward pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.trainer.engine.memory.oom_vote import OutOfMemoryVote, run_with_oom_vote, shrink_micro_batch
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.step import StepOutput, forward_backward, micro_batches, optimizer_step
from vastrun.trainer.heartbeat import Heartbeat

_BUCKET_BYTES = 25 << 20
"""Bytes of gradients per all-reduce."""


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
