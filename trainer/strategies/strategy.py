"""Strategy: the interface of a way to distribute a model over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from vastrun.contract.config import TrainConfig
from vastrun.trainer.stages.objective import Objective

Wrap = Callable[[Objective, TrainConfig, torch.device], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """Functions and properties of one strategy."""

    wrap: Wrap
    """Draws the weights of a model on the meta device, moves it to its device and wraps it."""
    gradient_sync: Callable[[nn.Module, bool], AbstractContextManager]
    """Context around the passes of a micro-batch: gradients are exchanged in the last one of a step."""
    rewrap: Callable[[nn.Module], nn.Module] = lambda model: model
    """Returns the model after passes of the bare one as if there had been none. All ranks call it; the
    weights stay."""
    sharded: bool
    """True when a rank holds only a shard of each parameter."""
