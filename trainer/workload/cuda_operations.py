"""CUDA operations: an estimate runs on a CPU, where some operations keep other tensors than on a GPU."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.models.attention import HeadNorm

WORKSPACE_BYTES = 66 << 20
"""Workspaces of cuBLAS in torch's allocator on an H100: 32 MiB in the main thread, 32 MiB in that of the
backward pass, and small pieces. Measured between two steps, as what no tensor accounts for."""


class FusedRmsNorm(torch.autograd.Function):
    """RMSNorm as CUDA's fused kernel: it keeps its input and a number for each row, not the quotients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Map x (..., E) and a weight (E,) to a tensor shaped like x; its values mean nothing."""
        ctx.save_for_backward(x, weight, torch.empty(*x.shape[:-1], 1, device=x.device))
        return torch.mul(x, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Return gradients of x and of the weight."""
        x, weight, _ = ctx.saved_tensors
        return torch.mul(gradients[0], x), torch.empty_like(weight)


def compute_as_cuda(model: nn.Module) -> None:
    """Let a model's norms keep the tensors that they keep on a GPU. What it computes then means nothing."""
    for module in model.modules():
        if isinstance(module, HeadNorm):
            module.forward = partial(_head_norm, module)  # type: ignore[method-assign]
        elif isinstance(module, nn.LayerNorm):
            module.forward = partial(_layer_norm, module)


def _head_norm(module: HeadNorm, x: Tensor) -> Tensor:
    normed: Tensor = FusedRmsNorm.apply(x, module.weight.to(x.dtype))
    return normed


def _layer_norm(module: nn.LayerNorm, x: Tensor) -> Tensor:
    """Compute in fp32, as CUDA's autocast does and that of a CPU does not."""
    weight, bias = (None if p is None else p.float() for p in (module.weight, module.bias))
    return functional.layer_norm(x.float(), module.normalized_shape, weight, bias, module.eps)
