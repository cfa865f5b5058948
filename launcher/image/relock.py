"""Locking: the digest of each pinned image, as its registry reports it; only on the user's request."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vastrun.launcher.core.errors import ImageError, UsageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.image.lock import Lock, LockedImage, gpu_needs
from vastrun.launcher.image.registry import PublishedImage, Registry

LABEL = "io.vastrun."
CHECKOUT = Path(__file__).resolve().parents[2]
VARIANTS = ("cpu", "cu130", "cu126")
_ARG = re.compile(r"^ARG (\w+)=(\S*)$", re.MULTILINE)


def relock(lock: Lock, registry: Registry) -> Lock:
    """Return the lock, with what registries say besides.

    Raises ImageError where a tag names another image now.
    """
    for variant, image in lock.images.items():
        found = registry.look_up(ImageReference.of(image.reference))
        check_digest(image, found.reference.digest)
        lock = lock.with_image(variant, replace(image, size_mb=found.size_mb))
    return lock


def lock_images(lock: Lock, names: Sequence[str], registry: Registry) -> Lock:
    """Return the lock with these images: ours by name, others as `VARIANT=IMAGE`.

    Raises ImageError, UsageError.
    """
    for word in names:
        variant, _, name = word.rpartition("=")
        found = registry.look_up(reference_of(name))
        variant = variant or found.labels.get(f"{LABEL}variant", "")
        lock = lock.with_image(variant, _locked(variant, found, lock))
    return lock


def reference_of(text: str) -> ImageReference:
    """Parse an image's name that the user typed. Raises UsageError."""
    try:
        return ImageReference.of(text)
    except ValueError as error:
        raise UsageError(str(error)) from error


def check_digest(image: LockedImage, digest: str, *, hint: str = "") -> None:
    """Raise ImageError, which shows both, when a tag names another image than the locked one."""
    if digest != image.digest:
        raise ImageError(
            f"{image.name} is not the image that was locked\nlocked: {image.digest}\nfound:  {digest}",
            hint=hint or f"if that is meant: vastrun image lock {image.name}",
        )


def _locked(variant: str, found: PublishedImage, lock: Lock) -> LockedImage:
    tagged = found.reference.tagged
    if variant not in VARIANTS:
        hint = f"vastrun image lock cu130={tagged}   (one of {', '.join(VARIANTS)})"
        raise UsageError(f"{tagged} does not say which variant it is", hint=hint)
    common = {"name": tagged, "digest": found.reference.digest, "size_mb": found.size_mb}
    # Ours say by their labels what they hold. Another image is taken to hold the versions of ours.
    if f"{LABEL}variant" in found.labels:
        cuda = found.labels.get(f"{LABEL}cuda") or None
        return LockedImage(
            **common,  # type: ignore[arg-type]
            whole=True,
            torch=found.labels.get(f"{LABEL}torch", ""),
            cuda=cuda,
            nccl=found.labels.get(f"{LABEL}nccl") or None,
            **gpu_needs(cuda),
        )
    if variant not in lock.images:
        hint = "build vastrun's image: vastrun image build"
        raise UsageError(
            f"{tagged} has no vastrun labels, and the lock has no {variant} to take its versions from",
            hint=hint,
        )
    return replace(lock.images[variant], **common, whole=False)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Pins:
    """Pinned versions of one variant."""

    variant: str
    base: str
    """The image to build on."""
    torch: str
    cuda: str
    """Empty: it trains on the CPU."""
    nccl: str
    """Empty: not compared."""

    @property
    def target(self) -> str:
        """The Dockerfile's last stage."""
        return "cuda" if self.cuda else "cpu"


def pins_of(variant: str, root: Path = CHECKOUT) -> Pins:
    """Read a variant's pins.

    Raises ImageError where there is no Dockerfile, UsageError for another variant.
    """
    try:
        text = (root / "Dockerfile").read_text(encoding="utf-8")
    except OSError as error:
        hint = "build from a checkout; the images that come with vastrun need no build: vastrun image ls"
        raise ImageError(f"there is no Dockerfile in {root}", hint=hint) from error
    arguments = dict(_ARG.findall(text))
    suffix = variant.upper()
    try:
        return Pins(
            variant=variant,
            base=arguments[f"BASE_{suffix}"],
            torch=arguments["TORCH"],
            cuda=arguments[f"CUDA_{suffix}"],
            nccl=arguments[f"NCCL_{suffix}"],
        )
    except KeyError as error:
        raise UsageError(f"the Dockerfile has no variant {variant}", hint=", ".join(VARIANTS)) from error
