"""Precision: what the forward pass computes in, and the scale that keeps fp16 gradients above zero."""

from __future__ import annotations

from contextlib import AbstractContextManager

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device) -> AbstractContextManager:
    """Compute matrix products within in the small type, sums and losses in fp32."""
    return torch.autocast(device.type, DTYPES[precision], enabled=precision != "fp32")


def scaler_of(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Make the gradient scaler, which does nothing but with fp16."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def computes_bf16(device: torch.device) -> bool:
    """Tell whether bf16 is not merely emulated at a loss."""
    return device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
