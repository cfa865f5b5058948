"""Devices that fail, or are too small: what the texts of errors say. No torch."""

from __future__ import annotations

import re
import sys


class DeviceError(Exception):
    """The device that this rank must train on is not there."""


FAILED_DEVICE = re.compile(
    r"\bDeviceError\b|uncorrectable (ECC|NVLink) error|GPU is lost|CUDA error: unknown error"
    r"|device\(s\) is/are busy or unavailable|[Nn]o CUDA(-capable device is detected| GPUs are available)"
    r"|CUDA driver initialization failed|system not yet initialized|Hardware stack error"
)
"""In the text of an error. What a faulty kernel causes too, such as a launch failure, is not among them."""

NO_MEMORY = re.compile(
    r"\bOutOfMemoryError\b|^MemoryError\b|CUDA (error: )?out of memory|can't allocate memory"
    r"|\b(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b|\bCUFFT_ALLOC_FAILED\b"
)
"""In the text of an error: of torch's allocators, and of libraries that allocate by themselves."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether there was no room, on the device or in main memory."""
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    # Neither the CPU's allocator nor what allocates on a GPU by itself has an error type of its own.
    return isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None
