"""Single: one rank, no wrapper."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.models.weights import materialise
from trainer.objective import UnrollLoss
from trainer.strategies.strategy import Strategy


def wrap(objective: UnrollLoss, config: TrainConfig, device: torch.device) -> nn.Module:  # noqa: ARG001
    materialise(objective)
    return objective.to(device)


def passes(model: nn.Module, last: bool) -> AbstractContextManager:  # noqa: ARG001
    return nullcontext()


SINGLE = Strategy(wrap=wrap, passes=passes, sharded=False)
