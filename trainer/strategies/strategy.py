"""Strategy: the interface of a way to distribute a model over the ranks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.stages.objective import Objective

OomVote = Callable[[], None]
"""Called before each message to other ranks; raises on all ranks when one of them ran out of memory."""

Wrap = Callable[[Objective, TrainConfig, torch.device], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """Functions and properties of one strategy."""

    wrap: Wrap
    """Draws the weights of a model on the meta device, moves it to its device and wraps it."""
    gradient_sync: Callable[[nn.Module, bool], AbstractContextManager]
    """Context around the passes of a micro-batch: gradients are exchanged in the last one of a step."""
    dry_run: Callable[[nn.Module, OomVote], AbstractContextManager[nn.Module]]
    """Context that yields the model for passes that may run out of memory on any rank. It sends nothing, or
    votes before each message; the state of a failed pass is cleaned up at the end."""
    rewrap: Callable[[nn.Module], nn.Module] = lambda model: model
    """Returns the model after a dry run as if there had been none. All ranks call it; the weights stay."""
    sharded: bool
    """True when a rank holds only a shard of each parameter."""
