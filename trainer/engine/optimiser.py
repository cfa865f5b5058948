"""Optimisers: AdamW, and Muon for the matrices within the blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from trainer.contract.config import OptimConfig
from trainer.engine.muon import Muon
from trainer.models.operator import Network


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
