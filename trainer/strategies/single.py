"""Single: one rank, no wrapper."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from vastrun.contract.config import TrainConfig
from vastrun.trainer.models.weights import materialise, move
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.strategies.strategy import Ask, Strategy


def wrap(objective: Objective, config: TrainConfig, device: torch.device) -> nn.Module:
    """Draw the weights; there is no other rank to share them with."""
    materialise(objective)
    move(objective, device)
    if config.cuda_graphs:
        # A replay writes its gradients where the next one will: they are added to tensors that stay.
        for parameter in objective.parameters():
            parameter.grad = torch.zeros_like(parameter)
    return objective


def passes(model: nn.Module, last: bool) -> AbstractContextManager:  # noqa: ARG001
    """Do nothing around a pass: no gradients are exchanged."""
    return nullcontext()


def rehearsal(model: nn.Module, ask: Ask) -> AbstractContextManager[nn.Module]:  # noqa: ARG001
    """Return the model itself: what fails on the only rank fails for nobody else."""
    return nullcontext(model)


SINGLE = Strategy(wrap=wrap, passes=passes, rehearsal=rehearsal, sharded=False)
