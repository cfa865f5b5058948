"""Memory: finds the micro-batch that fits on every rank, before the first step or while training.

The probe runs the passes of the next step, and of the first step of each other task, with the optimiser's
state allocated. Nothing of it remains: the training continues as if the job had set that micro-batch.

With `out_of_memory: retry` all ranks repeat a step with smaller micro-batches. Gradients are exchanged only
when all ranks have computed theirs, so that a failed rank leaves no other rank waiting. This costs one vote
per step, and no message is sent during a backward pass.
"""

import gc
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.contract.heartbeat import Heartbeat
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.exit import is_out_of_memory
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.plan import largest_divisor
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.step import StepOutput, forward_backward, micro_batches, optimizer_step

_BUCKET_BYTES = 25 << 20
"""Bytes of gradients per all-reduce."""
_GIB = 1 << 30


def probe_micro_batch(session: Session, heart: Heartbeat) -> Session:
    """Return the session with the largest micro-batch that fits: a rank's share, half of it, and so on."""
    if not _should_probe(session):
        return session
    with _restored_afterwards(session):
        while isinstance(failed_rank := _dry_run(session, heart), int):
            session = _shrink_micro_batch(session, failed_rank)
        _free_memory(session)
        session = replace(session, model=session.strategy.rewrap(session.model))
    if session.ranks.rank.is_first:
        print(f"memory: {session.plan.micro_batch} windows at once fit on every rank", flush=True)
    return session


def _should_probe(session: Session) -> bool:
    """Decide whether to probe. Not with CUDA graphs: they keep memory that no single pass shows."""
    config, ranks = session.config, session.ranks
    # What fits depends on the memory that is free, and decides the order of sums.
    auto = ranks.device.type == "cuda" and not config.deterministic
    requested = {"auto": auto, "on": True, "off": False}[config.probe]
    known = config.micro_batch is not None or ranks.rank.micro_batch_cap is not None
    # A pass of sharded weights sends messages: a rank that failed would leave the others waiting.
    possible = not session.strategy.sharded and not config.cuda_graphs
    return requested and possible and not known and session.start < config.steps


@contextmanager
def _restored_afterwards(session: Session) -> Iterator[None]:
    """Allocate the optimiser's state inside the block; afterwards everything is as before."""
    device, optimizer = session.ranks.device, session.optimizer
    on_gpu = device.type == "cuda"
    is_new = not optimizer.state
    with torch.random.fork_rng([device] if on_gpu else []):
        session.tensors()
        yield
    if is_new:
        optimizer.state.clear()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
        torch.cuda.reset_accumulated_memory_stats(device)


def _dry_run(session: Session, heart: Heartbeat) -> Tensor | int:
    """Do the passes of the steps to try. Return the rank that ran out of memory, if one did."""
    # The bare model sends nothing, and a wrapper is unusable after an error in its backward pass.
    bare = replace(session, model=session.objective)

    def passes() -> Tensor:
        if session.ranks.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(session.ranks.device)
        # Compiled code needs no more memory, and would have to be compiled for every size.
        with torch.compiler.set_stance("force_eager"):
            found = [
                forward_backward(bare, session.start, _micro_batches(session, step, heart), heart)
                for step in _steps_to_try(session)
            ]
        return found[-1]

    return _result_or_failed_rank(session.ranks, passes)


def _steps_to_try(session: Session) -> list[int]:
    """List the first step of each task from here on: another task's windows may be larger."""
    schedule, steps = session.task_schedule, dict[int, int]()
    # The order of the tasks is periodic: a task that does not occur in one period never does.
    for step in range(session.start, min(session.config.steps, session.start + len(schedule.mix.cycle))):
        for number in range(schedule.micro_batches):
            steps.setdefault(schedule.place(step, number).task, step)
        if len(steps) == len(session.tasks):
            break
    return sorted(set(steps.values()))


def _micro_batches(session: Session, step: int, heart: Heartbeat) -> Iterator[Windows]:
    """Yield this rank's windows of a later step."""
    for number in range(session.task_schedule.micro_batches):
        heart.beat(session.start, "data")
        yield session.loader.read(step, number)


def train_step_with_oom_retry(session: Session, step: int, heart: Heartbeat) -> tuple[Session, StepOutput]:
    """Train one step as `train_step` does, in micro-batches that fit; return the session with that size.

    A rank that runs out of memory in the optimiser step itself fails.
    """

    def passes() -> Tensor:
        return forward_backward(session, step, micro_batches(session, step, heart), heart)

    while isinstance(losses := _result_or_failed_rank(session.ranks, passes), int):
        session = _shrink_micro_batch(session, losses)
        session.write_plan()
    all_reduce_gradients(session)
    return session, (losses, optimizer_step(session, step, heart))


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


def _result_or_failed_rank(ranks: Ranks, work: Callable[[], Tensor]) -> Tensor | int:
    """Return the result of `work`, which sends nothing, or on all ranks the rank that ran out of memory."""
    result: Tensor | None = None
    try:
        result = work()
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    # Not in the `except`: a vote does not belong there, and the traceback holds the activations.
    [first] = ranks.all_reduce_max(float(ranks.rank.rank + 1 if result is None else 0))
    return int(first) - 1 if result is None or first else result


def _shrink_micro_batch(session: Session, failed_rank: int) -> Session:
    """Return the session with half of its micro-batch, or the next smaller one that divides a rank's share.

    Raises torch.OutOfMemoryError when `failed_rank` has no room for a single window.
    """
    # First: the message below reports the free memory.
    _free_memory(session)
    size = session.plan.micro_batch
    if size == 1:
        raise torch.OutOfMemoryError(
            f"rank {failed_rank} has no room for a single window next to weights, gradients and optimiser; "
            f"rank {session.ranks.rank.rank} has {_free_memory_text(session.ranks.device)}"
        )
    if session.ranks.rank.is_first:
        print(f"out of memory: {size} windows at once are too many for rank {failed_rank}", flush=True)
    return session.with_micro_batch(largest_divisor(session.plan.share, size // 2))


def _free_memory(session: Session) -> None:
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
