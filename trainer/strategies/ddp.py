"""DDP: every rank holds the whole model; gradients are averaged during the backward pass."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from inspect import signature

import torch
import torch.distributed as torch_dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vastrun.contract.config import TrainConfig
from vastrun.trainer.models.weights import materialise, move
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import Ask, Strategy


def wrap(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Draw the weights, and have torch's DDP exchange the gradients of all ranks."""
    materialise(objective)
    move(objective, device)
    # A wrapper that looks for no unused parameters reorders gradients after its first backward pass. The
    # place of a number in a message decides in which order ranks add it: a resumed run would add otherwise.
    # The last pass of a step may be one task's: what the others left in their own ends is sent with it.
    find_unused = config.deterministic or len(objective.operator.domains) > 1
    if find_unused and torch_dist.get_backend() == "fake":
        # trainer/workload: the wrapper reads which parameters were used, and tensors that hold nothing cannot
        # say. The bare model does the same work in the same memory: buckets are the gradients themselves.
        return objective
    return _wrapped(objective, device, find_unused=find_unused)


def _wrapped(objective: Objective, device: torch.device, *, find_unused: bool) -> DistributedDataParallel:
    return DistributedDataParallel(
        objective,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        find_unused_parameters=find_unused,
        # A fake group (trainer/workload) has no others whose weights could be compared. Older torch has no
        # such option.
        **({"init_sync": False} if torch_dist.get_backend() == "fake" else {}),
        **unsent_buffers(DistributedDataParallel),
    )


def unsent_buffers(wrapper: type[nn.Module]) -> dict[str, bool]:
    """Return the option by which the wrapper sends no buffers in each forward pass: they are constants.

    Older torch, which a user's image may keep, has it under another name.
    """
    new, old = "forward_sync_buffers", "broadcast_buffers"
    return {new if new in signature(wrapper).parameters else old: False}


def passes(model: nn.Module, last: bool) -> AbstractContextManager:
    """Keep the ranks from exchanging gradients in any but the last pass of a step."""
    if last or not isinstance(model, DistributedDataParallel):
        return nullcontext()
    return model.no_sync()


def rehearsal(model: DistributedDataParallel, ask: Ask) -> AbstractContextManager[nn.Module]:  # noqa: ARG001
    """Return the bare model: a wrapper could not be used again after an error in its backward pass."""
    return nullcontext(model.module)


def renewed(model: DistributedDataParallel) -> DistributedDataParallel:
    """Wrap the bare model anew: a wrapper notes which parameters passes of the bare model used, too.

    It would then expect gradients of them in the next step, which may be another task's.
    """
    device = next(model.parameters()).device
    return _wrapped(model.module, device, find_unused=model.find_unused_parameters)


DDP = Strategy(wrap=wrap, passes=passes, rehearsal=rehearsal, renewed=renewed, sharded=False)

DILOCO = replace(DDP, by_node=True)
"""DDP within a node; the nodes meet every so many steps (engine/diloco_sync.py)."""
