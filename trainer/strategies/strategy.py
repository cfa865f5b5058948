"""Strategy: what a way to spread a model over the ranks must offer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import nn

from vastrun.contract.config import TrainConfig
from vastrun.trainer.stages.objective import Objective

Ask = Callable[[], None]
"""Called before a message to other ranks; raises when one of them has failed and will not take part."""

Wrap = Callable[[Objective, TrainConfig, torch.device], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One line of the registry."""

    wrap: Wrap
    """The model to train: weights drawn, on its device, spread over the ranks. It comes without memory."""
    passes: Callable[[nn.Module, bool], AbstractContextManager]
    """Around the passes of a micro-batch: in the last one of a step, once, the ranks exchange gradients."""
    rehearsal: Callable[[nn.Module, Ask], AbstractContextManager[nn.Module]]
    """The model, to try passes that may fail on any rank: it sends nothing, or asks before each message.
    What a failed pass leaves in it is gone at the end."""
    renewed: Callable[[nn.Module], nn.Module] = lambda model: model
    """The model after a rehearsal, as if there had been none. All ranks call it; its weights stay."""
    sharded: bool
    """True when a rank holds a part of each parameter only."""
    by_node: bool = False
    """True when the ranks of a node train by themselves, and the nodes meet now and then."""
