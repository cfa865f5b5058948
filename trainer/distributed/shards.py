"""Shards: access this rank's part of tensors that may be sharded."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor


@torch.no_grad()
def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """Return this rank's part of each tensor, in the same memory; all of it if it is not sharded."""
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]


def reshard(model: nn.Module) -> None:
    """Free the gathered weights that a forward pass without a backward pass left on this rank.

    They are separate tensors from the optimiser's parameters, and would keep the old values.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
