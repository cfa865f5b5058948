"""How a model is spread over the ranks. A strategy is one function on the model; here is the list of them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from trainer.strategies.ddp import replicate

Strategy = Callable[[nn.Module, torch.device], nn.Module]

STRATEGIES: dict[str, Strategy] = {"ddp": replicate}


def parallelize(model: nn.Module, strategy: str, device: torch.device) -> nn.Module:
    """`model`, already on `device`, ready to train on all ranks. The optimiser comes after this."""
    return STRATEGIES[strategy](model, device)
