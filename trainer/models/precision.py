"""Precision: the types of the forward pass, TF32, and the gradient scaler of fp16."""

from contextlib import AbstractContextManager, nullcontext

import torch

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device, *, cache: bool = True) -> AbstractContextManager:
    """Compute matrix products inside the block in half precision, sums and losses in fp32.

    `cache`: cast a weight once for all its uses inside the block; this takes more memory and less time.
    """
    if not is_half(precision):
        return nullcontext()
    return torch.autocast(device.type, DTYPES[precision], cache_enabled=cache)


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Compute inside the block in the type of the tensors, whatever is cast around it."""
    if not torch.amp.is_autocast_available(device.type):
        return nullcontext()  # meta
    return torch.autocast(device.type, enabled=False)


def is_half(precision: str) -> bool:
    """Return True when the forward pass computes in a 16-bit type."""
    return DTYPES[precision] != torch.float32


def set_tf32(precision: str, device: torch.device) -> None:
    """Turn TF32 on or off for the fp32 products of a GPU, for the whole process.

    torch's default allows TF32 in convolutions only.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        torch.backends.cudnn.allow_tf32 = precision == "tf32"


def make_scaler(precision: str, device: torch.device) -> torch.amp.GradScaler:
    """Make the gradient scaler, which is enabled only for fp16."""
    return torch.amp.GradScaler(device.type, enabled=precision == "fp16")


def supports_bf16(device: torch.device) -> bool:
    """Return True when the device computes in bf16 without a slow emulation."""
    return device.type == "cpu" or torch.cuda.is_bf16_supported(including_emulation=False)
