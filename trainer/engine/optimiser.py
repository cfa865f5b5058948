"""Optimisers: AdamW, and Muon for the matrices within the blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from trainer.contract.config import OptimConfig
from trainer.engine.muon import Muon
from trainer.models.operator import Network

_LAST_SHARE = 0.01


def make_optimizer(network: Network, config: OptimConfig) -> torch.optim.Optimizer:
    """Make the optimiser of a network that is already spread.

    Vectors and scalars are not decayed; what is frozen is none of its business.
    """
    return _MAKERS[config.name](network, config)


def adamw(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """Make AdamW, which lets matrices decay and nothing else."""
    groups = _groups(model.parameters(), config)
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def muon(network: Network, config: OptimConfig) -> Muon:
    """Make an optimiser in which AdamW trains what is no matrix, and the layers at the ends of the model."""
    matrices = [p for p in network.blocks.parameters() if p.ndim == 2]
    hidden = set(matrices)
    others = _groups((p for p in network.parameters() if p not in hidden), config)
    turned = {"params": matrices, "weight_decay": config.weight_decay}
    return Muon([turned], others, lr=config.lr, betas=config.betas, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every parameter this learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def _groups(parameters: Iterable[nn.Parameter], config: OptimConfig) -> list[dict[str, Any]]:
    parameters = [p for p in parameters if p.requires_grad]
    return [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]


_MAKERS: dict[str, Callable[[Network, OptimConfig], torch.optim.Optimizer]] = {
    "adamw": adamw,
    "muon": muon,
}


class Schedule:
    """A linear warm-up, then the course that the job names, down to a hundredth of the full rate at most."""

    def __init__(self, config: OptimConfig, steps: int) -> None:
        self._config = config
        self._warmup = round(config.warmup * steps)
        self._steps = max(1, steps - self._warmup)

    def rate(self, step: int) -> float:
        """Return the rate of `step`, counted from 0."""
        config = self._config
        if step < self._warmup:
            return config.lr * (step + 1) / self._warmup
        share = _COURSES[config.schedule](step - self._warmup, self._steps, config)
        return config.lr * (_LAST_SHARE + (1 - _LAST_SHARE) * share)


_COURSES: dict[str, Callable[[int, int, OptimConfig], float]] = {
    "cosine": lambda step, steps, _: 0.5 * (1 + math.cos(math.pi * step / steps)),
    "linear": lambda step, steps, _: 1 - step / steps,
    "step": lambda step, _, config: config.drop ** (step // config.drop_after),
    "constant": lambda _, __, ___: 1.0,
}
