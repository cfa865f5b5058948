"""CUDA versions and the GPUs that they have code for, by NVIDIA's release notes of the CUDA toolkit."""

from __future__ import annotations

_FIRST_CUDA = ((1000, 12.8), (900, 11.8), (800, 11.0), (700, 9.0))
"""The first version for GPUs from that compute capability (x 100) on: Blackwell, Hopper, Ampere, Volta. GPUs
of one generation run each other's code."""
_DROPPED = ((13.0, 750),)
"""From that version on there is no code for GPUs below that compute capability: Maxwell, Pascal, Volta."""


def lacks_code(cuda: float, compute_cap: int) -> bool:
    """Tell whether programs of that CUDA version have no code for such a GPU. 0, unknown: they have."""
    if cuda <= 0 or compute_cap <= 0:
        return False
    first = next((version for min_cap, version in _FIRST_CUDA if compute_cap >= min_cap), 0.0)
    return cuda < first or any(cuda >= version and compute_cap < min_cap for version, min_cap in _DROPPED)
