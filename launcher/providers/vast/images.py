"""The image that trains when a job names none: for each offer, what its driver and its GPUs can run."""

from __future__ import annotations

from launcher.core.job import JobSpec
from launcher.image.lock import Capability, Lock, LockedImage
from launcher.providers.vast.rows import OfferRow


def image_for(row: OfferRow, spec: JobSpec, lock: Lock) -> LockedImage | None:
    """Return the first of the lock that runs there; None where none does."""
    machine = Capability(cuda_max=row.cuda, compute_cap=row.compute_cap, architecture=row.cpu_arch)
    return lock.fitting(machine, gpus=spec.resources.gpus)


def fetched_gb(row: OfferRow, spec: JobSpec, lock: Lock) -> float | None:
    """Return how large the image is; None where nobody knows."""
    image = None if spec.image else image_for(row, spec, lock)
    return image.size_mb / 1000 if image and image.size_mb else None
