"""The probe: before the first step, the largest micro-batch that fits on every rank is found by trying.

What is tried is the passes of the next step, and of the first one of each other task, with the optimiser's
state in place. Nothing of it stays: the training goes on as if it had been given that
micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.engine.memory.oom_vote import OutOfMemoryVote, release, run_with_oom_vote, with_less
from vastrun.trainer.engine.session import Session
from vastrun.trainer.engine.step import forward_backward
from vastrun.trainer.heartbeat import Heartbeat
from vastrun.trainer.strategies.strategy import Ask

_MIB = 1 << 20


def fitted(session: Session, heart: Heartbeat) -> Session:
    """Return the session with the largest micro-batch that fits, of a rank's share, half of it, and so on."""
    if not _is_due(session):
        return session
    with _undone(session):
        while (short := _short_rank(session, heart)) is not None:
            session = with_less(session, short)
        release(session)
        session = replace(session, plan=replace(session.plan, reserved_mib=_reserved_mib(session)))
        session = replace(session, model=session.strategy.renewed(session.model))
    if session.ranks.rank.is_first:
        print(_found(session), flush=True)
    return session


def _is_due(session: Session) -> bool:
    """Tell whether to probe: a CUDA graph keeps memory of its own, which no single pass shows."""
    config, ranks = session.config, session.ranks
    # What fits depends on the memory that is free, and decides the order of sums.
    auto = ranks.device.type == "cuda" and not config.deterministic
    wanted = {"auto": auto, "on": True, "off": False}[config.probe]
    known = config.micro_batch is not None or ranks.rank.micro_batch_cap is not None
    return wanted and not known and not config.cuda_graphs and session.start < config.steps


@contextmanager
def _undone(session: Session) -> Iterator[None]:
    """Give the optimiser its state within; afterwards all is as it was."""
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


def _short_rank(session: Session, heart: Heartbeat) -> int | None:
    """Return the rank that has too little memory for one of the steps to try, if any."""

    def rehearse(ask: Ask) -> Tensor:
        if session.ranks.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(session.ranks.device)
        # Compiled code needs no more, and would have to be made for every size.
        with (
            session.strategy.rehearsal(session.model, ask) as model,
            torch.compiler.set_stance("force_eager"),
        ):
            tried = replace(session, model=model)
            found = [
                forward_backward(tried, session.start, _micro_batches(session, step, heart), heart)
                for step in _steps_to_try(session)
            ]
            return found[-1]

    try:
        run_with_oom_vote(session.ranks, rehearse)
    except OutOfMemoryVote as error:
        return error.rank
    return None


def _steps_to_try(session: Session) -> list[int]:
    """Return the first step of each task from here on: another task's windows may be larger."""
    schedule, steps = session.task_schedule, dict[int, int]()
    # The order of the tasks repeats itself: what does not come up in one period never does.
    for step in range(session.start, min(session.config.steps, session.start + len(schedule.mix.cycle))):
        for number in range(schedule.micro_batches):
            steps.setdefault(schedule.place(step, number).task, step)
        if len(steps) == len(session.tasks):
            break
    return sorted(set(steps.values()))


def _micro_batches(session: Session, step: int, heart: Heartbeat) -> Iterator[Windows]:
    """Yield this rank's windows of a step that has not come yet."""
    for number in range(session.task_schedule.micro_batches):
        heart.beat(session.start, "data")
        yield session.loader.read(step, number)


def _reserved_mib(session: Session) -> int | None:
    """Return what the passes took of a GPU, on the rank that needed most."""
    if session.ranks.device.type != "cuda":
        return None
    [most] = session.ranks.all_reduce_max(torch.cuda.max_memory_reserved(session.ranks.device))
    return int(most) // _MIB


def _found(session: Session) -> str:
    plan, device = session.plan, session.ranks.device
    text = f"memory: {plan.micro_batch} windows at once fit on every rank"
    if plan.reserved_mib is None:
        return text
    there = torch.cuda.get_device_properties(device).total_memory // _MIB
    return f"{text}: {plan.reserved_mib:,} MiB of {there:,} are reserved"
