"""One optimiser step: forward, backward, clip, learning rate, update."""

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as torch_dist
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import local
from vastrun.trainer.distributed.rank import Heartbeat
from vastrun.trainer.engine.optimiser import set_learning_rate
from vastrun.trainer.engine.session import Session

StepOutput = tuple[Tensor, Tensor]
"""Loss, terms and turns of this rank's share, as of `forward_backward`, and the gradient's norm; all still on
the device."""


def train_step(session: Session, step: int, heart: Heartbeat) -> tuple[Session, StepOutput]:
    """Train step number `step`, counted from 0. Returns the unchanged session and the step's output."""
    losses = forward_backward(session, step, micro_batches(session, step, heart), heart)
    return session, (losses, optimizer_step(session, step, heart))


def micro_batches(session: Session, step: int, heart: Heartbeat) -> Iterator[Windows]:
    """Yield this rank's windows of one step, micro-batch by micro-batch."""
    for number in range(session.task_schedule.micro_batches):
        heart.beat(step, "data")
        with session.clock.waiting_for_data():
            windows = session.loader.read(step, number)
        yield windows


def forward_backward(
    session: Session, step: int, micro_batches: Iterable[Windows], heart: Heartbeat
) -> Tensor:
    """Compute the step's gradient, averaged over the ranks, into the parameters.

    Returns the loss on this rank's share and its terms (`stages/objective.py`), and where a step has several
    turns, the loss of each: (1 + terms,) or (1 + terms + turns,).
    """
    count = session.task_schedule.micro_batches
    found: list[Tensor] = []
    # A CUDA graph writes to the addresses that it recorded: its gradients must not be reallocated.
    session.optimizer.zero_grad(set_to_none=not session.config.cuda_graphs)
    for number, windows in enumerate(micro_batches, start=1):
        # Gradients are exchanged once per step, after the last micro-batch: each exchange costs the same.
        last = number == count
        heart.beat(step, session.activity_of(step, windows.task, "forward"))
        session.seed_own_model(step, number)
        if session.config.cuda_graphs:
            torch.compiler.cudagraph_mark_step_begin()
        with session.strategy.gradient_sync(session.model, last):
            # Autocast covers the forward pass only; the backward pass reuses the types that it chose.
            with session.autocast():
                losses: Tensor = session.model(windows)
            heart.beat(step, session.activity_of(step, windows.task, "backward"))
            # All micro-batches of all ranks have the same size, so the mean of means is the batch's mean. The
            # scaler keeps fp16 gradients above zero; with other precisions it changes nothing.
            session.scaler.scale(losses[0] / count).backward()
        # A copy: a CUDA graph writes the next micro-batch's losses to the same memory.
        found.append(losses.detach().clone())
    if count == 1:
        return found[0]
    losses, turns = torch.stack(found), session.task_schedule.turns
    mean = losses.mean(dim=0)
    return mean if turns == 1 else torch.cat([mean, losses[:, 0].reshape(turns, -1).mean(dim=1)])


def optimizer_step(session: Session, step: int, heart: Heartbeat) -> Tensor:
    """Clip the gradient and update the parameters; return the norm before clipping, on the device."""
    heart.beat(step, "optimizer")
    # Unscale first: the clip applies to the true gradient.
    session.scaler.unscale_(session.optimizer)
    norm = clip_gradients(session)
    set_learning_rate(session.optimizer, session.schedule.rate(step))
    # The scaler skips the step when an fp16 gradient overflowed, and then halves its scale.
    session.scaler.step(session.optimizer)
    session.scaler.update()
    # Averages follow the update: they include the weights of this step.
    session.objective.update_average()
    if session.ema:
        session.ema.update(step)
    return norm


@torch.no_grad()
def clip_gradients(session: Session) -> Tensor:
    """Clip the gradient to the configured norm; return its norm before that, on the device.

    Not `clip_grad_norm_`: on sharded parameters each of its operations costs the host many times as much.
    """
    # The optimiser's list: walking through the modules of the model takes a tenth of a millisecond.
    trained = (p for group in session.optimizer.param_groups for p in group["params"])
    gradients = local(p.grad for p in trained if p.grad is not None)
    # Squares are summed in float64: shards then give the same last digit as whole tensors.
    norms = torch._foreach_norm(gradients, 2, dtype=torch.float64)
    square = torch.stack(norms).square().sum().to(session.ranks.device)
    if session.strategy.sharded:
        torch_dist.all_reduce(square)
    norm = square.sqrt().float()
    # No `if norm > clip`: for its answer the host would wait for the device. The 1e-6 is torch's own.
    scale = (session.config.optim.clip / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_(gradients, scale.to(gradients[0].device))
    return norm
