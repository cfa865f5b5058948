"""Single: one rank, no wrapper."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.weights import materialise, move
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import OomVote, Strategy


def wrap(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Draw the weights and move the objective to the device."""
    materialise(objective)
    move(objective, device)
    if config.cuda_graphs:
        # CUDA graphs need gradients at fixed addresses: they are accumulated into these tensors.
        for parameter in objective.parameters():
            parameter.grad = torch.zeros_like(parameter)
    return objective


def gradient_sync(model: nn.Module, last: bool) -> AbstractContextManager:  # noqa: ARG001
    """Do nothing around a pass: no gradients are exchanged."""
    return nullcontext()


def dry_run(model: nn.Module, vote: OomVote) -> AbstractContextManager[nn.Module]:  # noqa: ARG001
    """Return the model itself: without other ranks there is nothing to vote on."""
    return nullcontext(model)


SINGLE = Strategy(wrap=wrap, gradient_sync=gradient_sync, dry_run=dry_run, sharded=False)
