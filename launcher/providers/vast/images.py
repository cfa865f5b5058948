"""The image that trains when a job names none: chosen for each offer by what its driver can run."""

from __future__ import annotations

from launcher.providers.vast.rows import OfferRow

_CUDA_13 = (
    "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
    "@sha256:db80a41f8428644cebcb3d75b0b62df334ab6c0e75785951eb25f48bfbd42407"
)
_CUDA_12 = (
    "pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime"
    "@sha256:6acf597eeb8e376a96580dde4952f37cc017fef732bb40bfc73f28f25e3f64b4"
)
_BLACKWELL = 1000
"""Compute capability x 100, as Vast writes it: the build for CUDA 12.6 has no code for these GPUs."""


def image_for(row: OfferRow) -> str | None:
    """The newest image that runs there; None where neither does."""
    if row.cpu_arch != "amd64":
        return None
    if row.cuda >= 13.0:
        return _CUDA_13
    if row.cuda >= 12.6 and row.compute_cap < _BLACKWELL:
        return _CUDA_12
    return None
