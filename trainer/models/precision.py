"""Precision: what the forward pass computes in, and the scale that keeps fp16 gradients above zero."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device, *, cache: bool = True) -> AbstractContextManager:
    """Compute matrix products within in the small type, sums and losses in fp32.

    `cache`: cast a weight once for all its uses within. The casts use more memory, and less time.
    """
    if not is_half(precision):
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision], cache_enabled=cache)


def is_half(precision: str) -> bool:
    """Tell whether the forward pass computes in a type of 16 bits."""
    return DTYPES[precision] != torch.float32


def set_tf32(precision: str, device: torch.device) -> None:
    """Let a GPU round the factors of fp32 products to TF32, or keep it from that, for the whole process.

    torch would do so for convolutions and for nothing else.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"


def scaler_of(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Make the gradient scaler, which does nothing but with fp16."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def supports_bf16(device: torch.device) -> bool:
    """Tell whether bf16 is not merely emulated at a loss."""
    return device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
