"""AdamW, and a learning rate that is a pure function of the step."""

from __future__ import annotations

import math

import torch
from torch import nn

from trainer.config import OptimConfig

_LAST_SHARE = 0.01


def adamw(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """The optimiser of a model that is already wrapped. Vectors and scalars are not decayed."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def learning_rate(step: int, steps: int, config: OptimConfig) -> float:
    """The rate of `step`, counted from 0: linear warm-up, then a cosine down to a hundredth."""
    warmup = round(config.warmup * steps)
    if step < warmup:
        return config.lr * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    share = 0.5 * (1 + math.cos(math.pi * progress))
    return config.lr * (_LAST_SHARE + (1 - _LAST_SHARE) * share)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
