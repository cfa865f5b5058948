"""Single: one rank, no wrapper."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.models.weights import materialise
from trainer.objective import UnrollLoss
from trainer.strategies.strategy import Strategy


def wrap(objective: UnrollLoss, config: TrainConfig, device: torch.device) -> nn.Module:  # noqa: ARG001
    materialise(objective)
    return objective.to(device)


SINGLE = Strategy(wrap=wrap, without_exchange=nullcontext, sharded=False)
