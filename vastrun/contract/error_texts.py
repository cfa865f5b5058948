"""Error texts: patterns of errors that need another GPU or more memory. Standard library only."""

from __future__ import annotations

import re

FAILED_DEVICE = re.compile(
    r"\bDeviceError\b|uncorrectable (ECC|NVLink) error|GPU is lost|CUDA error: unknown error"
    r"|device\(s\) is/are busy or unavailable|[Nn]o CUDA(-capable device is detected| GPUs are available)"
    r"|CUDA driver initialization failed|system not yet initialized|Hardware stack error"
)
"""Matches the text of an error of a failed device, without errors that a faulty kernel may cause as well (a
launch failure)."""

NO_MEMORY = re.compile(
    r"\bOutOfMemoryError\b|^MemoryError\b|CUDA (error: )?out of memory|can't allocate memory"
    r"|\b(CUBLAS|CUDNN)_STATUS_ALLOC_FAILED\b|\bCUFFT_ALLOC_FAILED\b"
    r"|DataLoader worker \(pid \d+\) is killed by signal: (Killed|Bus error)"
)
"""Matches the text of an out-of-memory error of torch or another library. A DataLoader worker is killed when
main memory is full, and receives SIGBUS when /dev/shm is."""
