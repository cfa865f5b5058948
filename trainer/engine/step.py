"""One optimiser step on one page: forward, backward, clip, learning rate, update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.shards import local
from vastrun.trainer.engine.optimiser import set_learning_rate
from vastrun.trainer.engine.session import Session
from vastrun.trainer.heartbeat import Heartbeat

StepOutput = tuple[Tensor, Tensor]
"""Of a step, still on the device: loss and terms of this rank's share, (1 + terms,); the gradient's norm."""


def train_step(session: Session, step: int, heart: Heartbeat) -> tuple[Session, StepOutput]:
    """Train step number `step`, counted from 0; return the session as given, and what the step found."""
    losses = forward_backward(session, step, micro_batches(session, step, heart), heart)
    return session, (losses, optimizer_step(session, step, heart))


def micro_batches(session: Session, step: int, heart: Heartbeat) -> Iterator[Windows]:
    """Yield this rank's windows of one step, a micro-batch at a time."""
    for number in range(session.task_schedule.micro_batches):
        heart.beat(step, "data")
        with session.clock.waiting_for_data():
            windows = session.loader.read(step, number)
        yield windows


def forward_backward(
    session: Session, step: int, micro_batches: Iterable[Windows], heart: Heartbeat
) -> Tensor:
    """Leave the step's gradient in the parameters, averaged over the ranks.

    Returns the loss on this rank's share and the terms it is made of (`stages/objective.py`), (1 + terms,).
    """
    count, sharded = session.task_schedule.micro_batches, session.strategy.sharded
    found: list[Tensor] = []
    # A CUDA graph writes where it wrote when it was recorded: its gradients must stay where they are.
    session.optimizer.zero_grad(set_to_none=not session.config.cuda_graphs)
    for number, windows in enumerate(micro_batches, start=1):
        # Gradients are exchanged once a step, after the last micro-batch: messages cost as much for each.
        last = number == count
        heart.beat(step, session.activity(step, windows.task, "forward"))
        if sharded:
            session.clock.meet()  # FSDP2 gathers weights from here on: a slow rank is waited for
        if session.config.cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with session.strategy.passes(session.model, last):
            # Half precision is for the forward pass; the backward pass takes the types that it chose.
            with session.autocast():
                losses: Tensor = session.model(windows)
            heart.beat(step, session.activity(step, windows.task, "backward"))
            if last and not sharded:
                session.clock.meet()  # DDP sends gradients from here on
            # All micro-batches of all ranks are equally large, so the mean of means is the batch's mean. The
            # scaler keeps fp16 gradients above zero; else it changes nothing.
            session.scaler.scale(losses[0] / count).backward()
        # A copy: a CUDA graph writes the next micro-batch's losses to the same memory.
        found.append(losses.detach().clone())
    return found[0] if count == 1 else torch.stack(found).mean(dim=0)


def optimizer_step(session: Session, step: int, heart: Heartbeat) -> Tensor:
    """Move the parameters along their gradient; return its norm before the clip, on the device."""
    heart.beat(step, "optimizer")
    # Before the clip, which is about the true gradient and not the scaled one.
    session.scaler.unscale_(session.optimizer)
    norm = clip_gradients(session)
    set_learning_rate(session.optimizer, session.schedule.rate(step))
    # Leaves the step out where an fp16 gradient overflowed, and halves the scale for the next one.
    session.scaler.step(session.optimizer)
    session.scaler.update()
    # Averages come after the update, of the weights that the step arrived at.
    session.objective.follow()
    if session.ema:
        session.ema.update()
    return norm


@torch.no_grad()
def clip_gradients(session: Session) -> Tensor:
    """Scale the gradient to at most the configured norm; return the norm that it had, on the device.

    Not `clip_grad_norm_`: on sharded parameters each of its operations costs the host many times as much.
    """
    # The optimiser's list: to walk through the modules of the model takes a tenth of a millisecond.
    trained = (p for group in session.optimizer.param_groups for p in group["params"])
    gradients = local(p.grad for p in trained if p.grad is not None)
    # Squares are added up in float64: shards then give the same last digit as whole tensors.
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float64)
    square = torch.stack(norms).square().sum().to(session.ranks.device)
    if session.strategy.sharded:
        torch_dist.all_reduce(square)
    norm = square.sqrt().float()
    # No `if norm > clip`: to know the answer the host would wait for the device. The 1e-6 is torch's own.
    scale = (session.config.optim.clip / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, scale.to(gradients[0].device))
    return norm
