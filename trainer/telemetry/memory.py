"""Memory of a rank: its peak, and whether the GPU's was nearly full."""

from __future__ import annotations

import resource
from dataclasses import dataclass

import torch

_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class RankMemory:
    """Since the beginning of this rank."""

    peak_memory_mib: float
    """Of tensors on the GPU; without one, of the process."""
    alloc_retries: int | None = None
    """How often the allocator had to give memory back to the GPU and ask again, which waits for the GPU."""


class MemoryWatch:
    """Says so when memory becomes short."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._retries = 0

    def look(self) -> RankMemory:
        if self._device.type == "cpu":
            return RankMemory(peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        retries = torch.cuda.memory_stats(self._device).get("num_alloc_retries", 0)
        if retries > self._retries == 0:
            print("the memory of this GPU is nearly full: steps are slower for it", flush=True)
        self._retries = retries
        peak = torch.cuda.max_memory_allocated(self._device)
        return RankMemory(peak_memory_mib=peak / _MIB, alloc_retries=retries)
