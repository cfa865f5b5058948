"""Shards: this rank's part of tensors that may be spread over the ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


@torch.no_grad()
def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return this rank's part of each tensor, in the same memory; the whole of one that is not spread."""
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def reshard(model: nn.Module) -> None:
    """Free the gathered weights that a forward pass without a backward pass has left on this rank.

    They are other tensors than the parameters that the optimiser updates, and would keep the old values.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
