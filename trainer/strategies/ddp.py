"""DDP: every rank holds the whole model; gradients are averaged during the backward pass."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def replicate(model: nn.Module, device: torch.device) -> nn.Module:
    return DistributedDataParallel(
        model,
        device_ids=[device.index] if device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        # The buffers are constants: without this, each forward pass would send them once more.
        forward_sync_buffers=False,
    )
