"""What lies on this rank of a tensor that may be spread over the ranks."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor


@torch.no_grad()
def local(tensors: Iterable[Tensor]) -> list[Tensor]:
    """This rank's part of each tensor, in the same memory; all of one that is not spread."""
    return [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
