"""Devices: tell by the text of an error whether a device failed or has too little memory. No torch."""

from __future__ import annotations

import re
import sys


class DeviceError(Exception):
    """The device on which this rank must train does not exist."""


FAILED_DEVICE = re.compile(
    r"\bDeviceError\b|uncorrectable (ECC|NVLink) error|GPU is lost|CUDA error: unknown error"
    r"|device\(s\) is/are busy or unavailable|[Nn]o CUDA(-capable device is detected| GPUs are available)"
    r"|CUDA driver initialization failed|system not yet initialized|Hardware stack error"
)
"""Found in the text of an error: the device failed. Left out is what a faulty kernel may cause as well, such
as a launch failure."""

NO_MEMORY = re.compile(
    r"\bOutOfMemoryError\b|^MemoryError\b|CUDA (error: )?out of memory|can't allocate memory"
    r"|\b(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b|\bCUFFT_ALLOC_FAILED\b"
)
"""Found in the text of an error: no memory, for torch or for a library that allocates by itself."""


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means too little memory, on the device or in main memory."""
    # Not imported: a program that has not loaded torch cannot have raised an error of torch.
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch and isinstance(error, torch.OutOfMemoryError)):
        return True
    # Neither the CPU's allocator nor what allocates on a GPU by itself has an error type of its own.
    return isinstance(error, RuntimeError) and NO_MEMORY.search(str(error)) is not None
