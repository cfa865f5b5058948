"""The images of ours that this computer's Docker has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from launcher.image.daemon import explained
from launcher.image.lock import Lock, LockedImage
from launcher.image.locking import LABEL, check_digest

if TYPE_CHECKING:
    from docker import DockerClient


@dataclass(frozen=True, kw_only=True)
class LocalImage:
    """One that was built or pulled here."""

    reference: str
    """With a tag, or empty."""
    id: str
    digests: tuple[str, ...]
    """Those of the registries that have it."""
    variant: str
    version: str
    revision: str
    created: str
    size_mb: int
    """Unpacked."""


def images_here(client: DockerClient) -> list[LocalImage]:
    """The newest first. Raises ImageError."""
    with explained("cannot list the images"):
        found = client.images.list(filters={"label": f"{LABEL}variant"})
    images = [_local(image.attrs, reference) for image in found for reference in image.tags or [""]]
    return sorted(images, key=lambda image: (image.created, image.reference), reverse=True)


def built_here(client: DockerClient, variant: str, lock: Lock) -> LocalImage | None:
    """The newest of a variant; None: there is none.

    Raises ImageError when it goes by the name of a locked image and is another.
    """
    image = next((image for image in images_here(client) if image.variant == variant), None)
    locked = lock.images.get(variant)
    if image is not None and locked is not None and image.reference == locked.name:
        check_local(image, locked)
    return image


def check_local(image: LocalImage, locked: LockedImage) -> None:
    """Raises ImageError, which shows both digests, when the image here is not the locked one."""
    if locked.digest not in image.digests:
        check_digest(locked, next(iter(image.digests), image.id))


def _local(attributes: dict[str, Any], reference: str) -> LocalImage:
    labels = (attributes.get("Config") or {}).get("Labels") or {}
    digests = {digest.rpartition("@")[2] for digest in attributes.get("RepoDigests") or []}
    return LocalImage(
        reference=reference,
        id=attributes["Id"],
        digests=tuple(sorted({*digests, attributes["Id"]})),
        variant=labels[f"{LABEL}variant"],
        version=labels.get(f"{LABEL}version", ""),
        revision=labels.get("org.opencontainers.image.revision", ""),
        created=attributes.get("Created", ""),
        size_mb=round(attributes.get("Size", 0) / 1e6),
    )
