"""Memory probe: finds the largest micro-batch that fits on every rank by trying, before the first step.

It runs the passes of the next step, and of the first step of each other task, with the optimiser's state
allocated. Nothing of it remains: the training continues as if the job had set that micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from vastrun.contract.heartbeat import Heartbeat
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.engine.memory.retry import (
    OutOfMemoryVote,
    free_memory,
    run_with_oom_vote,
    shrink_micro_batch,
)
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.step import forward_backward
from vastrun.trainer.strategies.strategy import OomVote

_MIB = 1 << 20


def probe_micro_batch(session: Session, heart: Heartbeat) -> Session:
    """Return the session with the largest micro-batch that fits: a rank's share, half of it, and so on."""
    if not _should_probe(session):
        return session
    with _restored_afterwards(session):
        while (failed_rank := _failed_rank(session, heart)) is not None:
            session = shrink_micro_batch(session, failed_rank)
        free_memory(session)
        session = replace(session, plan=replace(session.plan, reserved_mib=_reserved_mib(session)))
        session = replace(session, model=session.strategy.rewrap(session.model))
    if session.ranks.rank.is_first:
        print(_summary(session), flush=True)
    return session


def _should_probe(session: Session) -> bool:
    """Decide whether to probe. Not with CUDA graphs: they keep memory that no single pass shows."""
    config, ranks = session.config, session.ranks
    # What fits depends on the memory that is free, and decides the order of sums.
    auto = ranks.device.type == "cuda" and not config.deterministic
    requested = {"auto": auto, "on": True, "off": False}[config.probe]
    known = config.micro_batch is not None or ranks.rank.micro_batch_cap is not None
    return requested and not known and not config.cuda_graphs and session.start < config.steps


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


def _failed_rank(session: Session, heart: Heartbeat) -> int | None:
    """Return the rank that ran out of memory in one of the steps to try; None: all fit."""

    def dry_run(vote: OomVote) -> Tensor:
        if session.ranks.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(session.ranks.device)
        # Compiled code needs no more memory, and would have to be compiled for every size.
        with (
            session.strategy.dry_run(session.model, vote) as model,
            torch.compiler.set_stance("force_eager"),
        ):
            probed = replace(session, model=model)
            found = [
                forward_backward(probed, session.start, _micro_batches(session, step, heart), heart)
                for step in _steps_to_try(session)
            ]
            return found[-1]

    try:
        run_with_oom_vote(session.ranks, dry_run)
    except OutOfMemoryVote as error:
        return error.rank
    return None


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


def _reserved_mib(session: Session) -> int | None:
    """Return the GPU memory that the passes reserved, in MiB, on the rank that needed the most."""
    if session.ranks.device.type != "cuda":
        return None
    [max_reserved_bytes] = session.ranks.all_reduce_max(torch.cuda.max_memory_reserved(session.ranks.device))
    return int(max_reserved_bytes) // _MIB


def _summary(session: Session) -> str:
    plan, device = session.plan, session.ranks.device
    text = f"memory: {plan.micro_batch} windows at once fit on every rank"
    if plan.reserved_mib is None:
        return text
    total_mib = torch.cuda.get_device_properties(device).total_memory // _MIB
    return f"{text}: {plan.reserved_mib:,} MiB of {total_mib:,} are reserved"
