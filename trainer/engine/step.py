"""One optimiser step: its micro-batches, one exchange of gradients, the clip, the rate, the update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as torch_dist
from torch import Tensor

from trainer.data.trajectories import Windows
from trainer.distributed.shards import local
from trainer.engine.optimiser import set_learning_rate
from trainer.engine.session import Session
from trainer.heartbeat import Heartbeat


def take_step(
    session: Session, step: int, micro_batches: Iterable[Windows], heart: Heartbeat
) -> tuple[Tensor, Tensor]:
    """(loss and terms on this rank's share, norm of the whole gradient), still on the device. `step` counts
    from 0."""
    losses = learn(session, step, micro_batches, heart)
    return losses, update(session, step, heart)


def micro_batches(session: Session, step: int, heart: Heartbeat) -> Iterator[Windows]:
    """This rank's windows of one step, a micro-batch at a time."""
    for number in range(session.task_schedule.micro_batches):
        heart.beat(step, "data")
        with session.clock.waiting_for_data():
            windows = session.loader.read(step, number)
        yield windows


def learn(session: Session, step: int, micro_batches: Iterable[Windows], heart: Heartbeat) -> Tensor:
    """(1 + terms,): the loss on this rank's share, and what it is made of (objective.py); the parameters have
    its gradient, averaged over the ranks."""
    session.optimizer.zero_grad(set_to_none=not session.config.cuda_graphs)
    losses = [
        _learn(session, step, windows, heart, last=number == session.task_schedule.micro_batches)
        for number, windows in enumerate(micro_batches, start=1)
    ]
    return torch.stack(losses).mean(dim=0)


def update(session: Session, step: int, heart: Heartbeat) -> Tensor:
    """The norm of the gradient that the parameters have; they follow it."""
    heart.beat(step, "optimizer")
    session.scaler.unscale_(session.optimizer)
    norm = clip(session)
    set_learning_rate(session.optimizer, session.schedule.rate(step))
    session.scaler.step(session.optimizer)
    session.scaler.update()
    session.objective.follow()
    if session.ema:
        session.ema.update()
    return norm


def _learn(session: Session, step: int, windows: Windows, heart: Heartbeat, *, last: bool) -> Tensor:
    """Adds the gradient of one micro-batch; the ranks exchange theirs after the last one only."""
    heart.beat(step, session.activity(step, windows.task, "forward"))
    if session.strategy.sharded:
        session.clock.meet()
    if session.config.cuda_graphs:
        torch.compiler.cudagraph_mark_step_begin()
    with session.strategy.passes(session.model, last):
        with session.autocast():
            losses: Tensor = session.model(windows)
        heart.beat(step, session.activity(step, windows.task, "backward"))
        if last and not session.strategy.sharded:
            session.clock.meet()
        # All micro-batches of all ranks are equally large, so the mean of means is the mean over the batch.
        session.scaler.scale(losses[0] / session.task_schedule.micro_batches).backward()
    return losses.detach().clone()


@torch.no_grad()
def clip(session: Session) -> Tensor:
    """The norm of the whole gradient, whose norm is then at most the configured one.

    Squares are added up in float64: shards then give the same last digit as whole tensors. The host never
    waits for the device.
    """
    gradients = local(p.grad for p in session.model.parameters() if p.grad is not None)
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float64)
    square = torch.stack(norms).square().sum().to(session.ranks.device)
    if session.strategy.sharded:
        torch_dist.all_reduce(square)
    norm = square.sqrt().float()
    scale = (session.config.optim.clip / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, scale.to(gradients[0].device))
    return norm
