"""The lock: which images train, each by its digest, and what they require of a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from vastrun.contract.records import write_atomically
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.package_files import configs_dir

ARCHITECTURE = "amd64"
"""Architecture of the rented machines."""
_SCHEMA = 1
_BLACKWELL = 1000
"""Lowest compute capability of its GPUs."""
_BLACKWELL_CUDA = 12.8
_MIN_CUDA = ((1000, 12.8), (900, 11.8), (800, 11.0), (700, 9.0))
"""The first version for GPUs from that compute capability (x 100) on: Blackwell, Hopper, Ampere, Volta. GPUs
of one generation run each other's code."""
_MIN_CAPABILITY = ((13.0, 750),)
"""From that version on there is no code for GPUs below that compute capability: Maxwell, Pascal, Volta."""
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_HEAD = "# Images by digest; the first that fits a machine is taken. `vastrun image lock` writes this file.\n"
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
class Capability:
    """Properties of a machine that decide which images run there."""

    cuda_max: float
    """The newest CUDA that its driver supports; 0: it has no GPU."""
    compute_cap: int
    """Compute capability x 100, as Vast writes it: 890 is 8.9."""
    architecture: str = ARCHITECTURE


@dataclass(frozen=True, kw_only=True)
class LockedImage:
    """One image that cannot change."""

    name: str
    """With the tag that named it when it was locked."""
    digest: str
    architecture: str = ARCHITECTURE
    size_mb: int | None = None
    """To be fetched, compressed; None: no registry was asked yet."""
    whole: bool
    """Ours, with all that the onboard trainer needs; what another one lacks is installed at boot."""
    torch: str
    cuda: str | None
    """CUDA version of its torch; None: it trains on the CPU."""
    nccl: str | None
    """NCCL version; None: it has none, or it is unknown."""
    driver_cuda: float = 0.0
    """The CUDA that the host's driver must support at least."""
    blackwell: bool = False
    """It has code for Blackwell's GPUs."""

    @property
    def reference(self) -> str:
        """Name with digest, which a rental uses: a machine runs this image or none."""
        return f"{self.name}@{self.digest}"

    def fits(self, machine: Capability) -> bool:
        """Tell whether it runs on such a machine."""
        if machine.architecture != self.architecture or machine.cuda_max < self.driver_cuda:
            return False
        without_blackwell = machine.compute_cap >= _BLACKWELL and not self.blackwell
        return self.cuda is None or not (
            without_blackwell or lacks_code(self.driver_cuda, machine.compute_cap)
        )


@dataclass(frozen=True)
class Lock:
    """The images by variant, in the order in which they are tried."""

    images: Mapping[str, LockedImage]

    def fitting(self, machine: Capability, *, gpus: int) -> LockedImage | None:
        """Return the first that runs there, or None. Without GPUs, one for the CPU comes before."""
        on_gpus = [image for image in self.images.values() if image.cuda is not None]
        on_cpu = [image for image in self.images.values() if image.cuda is None]
        candidates = on_gpus if gpus else [*on_cpu, *on_gpus]
        return next((image for image in candidates if image.fits(machine)), None)

    @property
    def needs(self) -> str:
        """Text that says what a machine needs for one of the images."""
        found = [(image.driver_cuda, image.blackwell) for image in self.images.values() if image.cuda]
        if not found:
            return "an image for GPUs in the lock"
        min_cuda = min(cuda for cuda, _ in found)
        on_blackwell = min((cuda for cuda, blackwell in found if blackwell), default=min_cuda)
        special = f", or {on_blackwell:.1f} on Blackwell" if on_blackwell > min_cuda else ""
        return f"CUDA {min_cuda:.1f}{special}"

    def with_image(self, variant: str, image: LockedImage) -> Lock:
        """Return the lock with that image as the variant's."""
        return replace(self, images={**self.images, variant: image})


def gpu_needs(cuda: str | None) -> Mapping[str, Any]:
    """Return what a torch that was built with this CUDA needs of a machine, as LockedImage has it."""
    number = float(cuda) if cuda else 0.0
    return {"driver_cuda": number, "blackwell": number >= _BLACKWELL_CUDA}


def shipped_lock() -> Lock:
    """Return the lock that comes with vastrun."""
    return read_lock(shipped_path())


def shipped_path() -> Path:
    """Return the lock that came with this vastrun."""
    return configs_dir() / "image.lock"


def read_lock(path: Path) -> Lock:
    """Read the lock. Raises ImageError when the file cannot be read or is no lock."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        if content["version"] != _SCHEMA:
            raise ValueError(f"version {content['version']}, expected {_SCHEMA}")
        images = {str(name): LockedImage(**values) for name, values in content["images"].items()}
        for image in images.values():
            if not _DIGEST.fullmatch(image.digest):
                raise ValueError(f"{image.name}: no digest: {image.digest!r}")
    except OSError as error:
        raise ImageError(f"cannot read {path}: {error.strerror}", hint=_restore_hint(path)) from error
    except (yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        text = f"{path} is not a lock of images: {_fault(error)}"
        raise ImageError(text, hint=_restore_hint(path)) from error
    return Lock(images)


def _fault(error: Exception) -> str:
    """Return the fault of the file in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return f"it has no {error.args[0]}" if isinstance(error, KeyError) else str(error)


def _restore_hint(path: Path) -> str:
    shipped = shipped_path()
    return f"git checkout -- {path}, or install vastrun again" if path == shipped else f"cp {shipped} {path}"


def write_lock(path: Path, lock: Lock) -> None:
    """Write the lock to the file, which is whole at any moment."""
    document = {"version": _SCHEMA, "images": {name: asdict(image) for name, image in lock.images.items()}}
    try:
        write_atomically(path, _HEAD + yaml.safe_dump(document, sort_keys=False, width=200))
    except OSError as error:
        hint = "export VASTRUN_IMAGE_LOCK=/somewhere/writable/image.lock"
        raise ImageError(f"cannot write {path}: {error.strerror}", hint=hint) from error


def lacks_code(cuda: float, compute_cap: int) -> bool:
    """Tell whether programs of that CUDA version have no code for such a GPU. 0, unknown: they have."""
    if cuda <= 0 or compute_cap <= 0:
        return False
    first = next((version for min_cap, version in _MIN_CUDA if compute_cap >= min_cap), 0.0)
    return cuda < first or any(
        cuda >= version and compute_cap < min_cap for version, min_cap in _MIN_CAPABILITY
    )


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

    def fits(self, machine: Capability, *, gpus: int) -> bool:
        """Tell whether the image runs on the machine, as far as that is known."""
        if self.architecture not in ("", machine.architecture):
            return False
        is_driver_old = 0 < machine.cuda_max < self.cuda
        return not gpus or not (is_driver_old or lacks_code(self.cuda, machine.compute_cap))

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
