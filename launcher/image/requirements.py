"""Requirements of a job's own image, read from its name or from the lock. No registry is asked."""

from __future__ import annotations

import re
from dataclasses import dataclass

from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.image.lock import Capability, Lock, lacks_code

_CUDA = re.compile(r"(?<![a-z])cu(?:da)?[-_]?(?:(\d{1,2})\.(\d)|(\d{2})(\d))(?!\d)", re.ASCII)
"""`cuda12.4`, `cuda-12.8.1`, `cu128`; a major version alone says too little."""
_CUDA_REPOSITORY = re.compile(r"(\d{1,2})\.(\d)(?!\d)", re.ASCII)
"""At the beginning of a tag of NVIDIA's own `nvidia/cuda`: `12.4.1-runtime-ubuntu22.04`."""
_OLDEST_CUDA, _NEWEST_CUDA = 9.0, 20.0
_ARCHITECTURES = {
    "arm64": re.compile(r"(?<![a-z0-9])(?:arm64(?:v8)?|aarch64)(?![a-z0-9])"),
    "amd64": re.compile(r"(?<![a-z0-9])(?:amd64|x86[-_]64)(?![a-z0-9])"),
}


@dataclass(frozen=True, kw_only=True)
class ImageRequirements:
    """Known requirements of an image; no machine is rejected for unknown ones."""

    cuda: float = 0.0
    """CUDA version that its programs are built with; 0: unknown."""
    architecture: str = ""
    """Empty: unknown."""

    @classmethod
    def of(cls, image: str, lock: Lock | None = None) -> ImageRequirements:
        """Read them from the lock where it has that digest, else from the name and the tag."""
        try:
            reference = ImageReference.of(image)
        except ValueError:
            return cls()
        for locked in lock.images.values() if lock else ():
            if reference.digest == locked.digest:
                return cls(cuda=locked.driver_cuda, architecture=locked.architecture)
        words = f"{reference.repository}:{reference.tag}".lower()
        return cls(
            cuda=_cuda_of(reference),
            architecture=next((name for name, form in _ARCHITECTURES.items() if form.search(words)), ""),
        )

    def misfit(self, machine: Capability, *, gpus: int) -> str:
        """Say why the image does not run on such a machine; empty where it does, or where that is unknown."""
        if self.architecture and self.architecture != machine.architecture:
            return f"it is for {self.architecture}, the machine is {machine.architecture}"
        if not (gpus and self.cuda):
            return ""
        if 0 < machine.cuda_max < self.cuda:
            return f"it needs a driver for CUDA {self.cuda:g}, the machine's is for {machine.cuda_max:g}"
        if lacks_code(self.cuda, machine.compute_cap):
            return f"CUDA {self.cuda:g} has no code for compute capability {machine.compute_cap / 100:g}"
        return ""

    def __str__(self) -> str:
        known = [f"CUDA {self.cuda:.1f}"] if self.cuda else []
        known += [self.architecture] if self.architecture else []
        return f"its name says {' and '.join(known)}" if known else "its name does not say its CUDA version"


def _cuda_of(reference: ImageReference) -> float:
    tag = reference.tag.lower()
    is_nvidias = reference.repository.rpartition("/")[2] == "cuda"
    found = _CUDA.search(tag) or (_CUDA_REPOSITORY.match(tag) if is_nvidias else None)
    if found is None:
        return 0.0
    major, minor = (part for part in found.groups() if part is not None)
    version = float(f"{major}.{minor}")
    return version if _OLDEST_CUDA <= version <= _NEWEST_CUDA else 0.0
