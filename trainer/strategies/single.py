"""Single: one rank, no wrapper."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from vastrun.contract.config import TrainConfig
from vastrun.trainer.models.weights import materialise, move
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import Strategy


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


SINGLE = Strategy(wrap=wrap, gradient_sync=gradient_sync, sharded=False)
