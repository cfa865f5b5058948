"""The image that trains: the job's own, or for each offer what its driver and its GPUs can run."""

from __future__ import annotations

from launcher.core.gpus import is_same_name
from launcher.core.job import JobSpec
from launcher.image.lock import ARCHITECTURE, Capability, Lock, LockedImage
from launcher.image.requirements import ImageRequirements
from launcher.providers.vast.rows import OfferRow


def image_for(row: OfferRow, spec: JobSpec, lock: Lock) -> LockedImage | None:
    """Return the first of the lock that runs there; None where none does."""
    return lock.fitting(_capability(row), gpus=spec.resources.gpus)


def runs_image(row: OfferRow, spec: JobSpec, lock: Lock) -> bool:
    """Tell whether the job's own image, or one of the lock, runs there, as far as that is known."""
    if spec.image is None:
        return image_for(row, spec, lock) is not None
    image, gpus = ImageRequirements.of(spec.image, lock), spec.resources.gpus
    if not image.architecture and row.cpu_arch != ARCHITECTURE:
        # Few images are for another architecture: only a job that asks for these GPUs knows that its own is.
        return any(is_same_name(row.gpu_name, name) for name in spec.resources.gpu_names)
    return not image.misfit(_capability(row), gpus=gpus)


def image_needs(spec: JobSpec, lock: Lock) -> str:
    """Return what a machine must have for the image, in words."""
    if spec.image is None:
        return f"ours need {lock.needs}"
    return str(ImageRequirements.of(spec.image, lock))


def fetched_gb(row: OfferRow, spec: JobSpec, lock: Lock) -> float | None:
    """Return how large the image is; None where nobody knows."""
    image = None if spec.image else image_for(row, spec, lock)
    return image.size_mb / 1000 if image and image.size_mb else None


def _capability(row: OfferRow) -> Capability:
    return Capability(cuda_max=row.cuda, compute_cap=row.compute_cap, architecture=row.cpu_arch)
