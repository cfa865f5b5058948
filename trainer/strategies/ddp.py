"""DDP: every rank holds the whole model; gradients are averaged during the backward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from inspect import signature

import torch
import torch.distributed as torch_dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.weights import materialise, move
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import OomVote, Strategy


def wrap(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Draw the weights and wrap the objective in torch's DDP."""
    materialise(objective)
    move(objective, device)
    # Without find_unused_parameters, DDP reorders its buckets after the first backward pass. The place of a
    # number in a message decides in which order ranks add it: a resumed run would add in another order.
    # With several tasks, the last pass of a step uses one task's ends; the gradients of the others are sent
    # with it. A user's model may have parameters that a pass does not use.
    find_unused = config.deterministic or len(objective.operator.domains) > 1 or config.model.is_own
    if find_unused and torch_dist.get_backend() == "fake":
        # trainer/workload: the wrapper reads values that say which parameters were used, and fake tensors
        # have none. The bare model does the same work in the same memory: gradients are views of the buckets.
        return objective
    return _wrapped(objective, device, find_unused=find_unused)


def _wrapped(objective: Objective, device: torch.device, *, find_unused: bool) -> DistributedDataParallel:
    return DistributedDataParallel(
        objective,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=find_unused,
        # A fake group (trainer/workload) has no other ranks to compare weights with. Older torch lacks this
        # option.
        **({"init_sync": False} if torch_dist.get_backend() == "fake" else {}),
        **without_buffer_sync(DistributedDataParallel),
    )


def without_buffer_sync(wrapper: type[nn.Module]) -> dict[str, bool]:
    """Return the option that keeps the wrapper from broadcasting buffers in each forward pass.

    Buffers are constants here. Older torch, which a user's image may have, names the option differently.
    """
    new, old = "forward_sync_buffers", "broadcast_buffers"
    return {new if new in signature(wrapper).parameters else old: False}


def gradient_sync(model: nn.Module, last: bool) -> AbstractContextManager:
    """Exchange gradients in the last pass of a step only."""
    if last or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def dry_run(model: DistributedDataParallel, vote: OomVote) -> AbstractContextManager[nn.Module]:  # noqa: ARG001
    """Return the bare model: a wrapper is unusable after an error in its backward pass."""
    return nullcontext(model.module)


def rewrap(model: DistributedDataParallel) -> DistributedDataParallel:
    """Wrap the bare model again: the old wrapper has recorded which parameters the dry run used.

    It would expect gradients of these in the next step, which may belong to another task.
    """
    device = next(model.parameters()).device
    return _wrapped(model.module, device, find_unused=model.find_unused_parameters)


DDP = Strategy(wrap=wrap, gradient_sync=gradient_sync, dry_run=dry_run, rewrap=rewrap, sharded=False)
