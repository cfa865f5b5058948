"""Strategy: what a way to spread a model over the ranks must offer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from trainer.config import TrainConfig
from trainer.objective import UnrollLoss

Wrap = Callable[[UnrollLoss, TrainConfig, torch.device], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One line of the registry."""

    wrap: Wrap
    """The model to train: weights drawn, on its device, spread over the ranks. It comes without memory."""
    passes: Callable[[nn.Module, bool], AbstractContextManager]
    """Around the passes of a micro-batch: in the last one of a step, once, the ranks exchange gradients."""
    sharded: bool
    """True when a rank holds a part of each parameter only."""
