"""Local images: the images of vastrun that Docker has on this computer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vastrun.launcher.image.daemon import docker_errors
from vastrun.launcher.image.lock import Lock, LockedImage
from vastrun.launcher.image.relock import LABEL, check_digest

if TYPE_CHECKING:
    from docker import DockerClient

_NO_NAME = "<none>:<none>"


@dataclass(frozen=True, kw_only=True)
class LocalImage:
    """One that was built or pulled here."""

    reference: str
    """With a tag, or empty."""
    id: str
    digests: tuple[str, ...]
    """Digests in the registries that have it."""
    variant: str
    version: str
    revision: str
    created_at: float
    """Epoch seconds."""
    size_mb: int
    """Unpacked."""


def local_images(client: DockerClient) -> list[LocalImage]:
    """List our images that Docker has here, the newest first. Raises ImageError."""
    with docker_errors("cannot list the images"):
        # One answer: an image that is removed meanwhile is in it or is not.
        rows = client.api.images(filters={"label": f"{LABEL}variant"})
    images = [_local(row, reference) for row in rows for reference in _names(row)]
    return sorted(images, key=lambda image: (image.created_at, image.reference), reverse=True)


def newest_local_image(client: DockerClient, variant: str, lock: Lock) -> LocalImage | None:
    """Return the newest image of a variant that was built here; None: there is none.

    Raises ImageError when it goes by the name of a locked image and is another.
    """
    image = next((image for image in local_images(client) if image.variant == variant), None)
    locked = lock.images.get(variant)
    if image is not None and locked is not None and image.reference == locked.name:
        check_local(image, locked)
    return image


def check_local(image: LocalImage, locked: LockedImage) -> None:
    """Raise ImageError, which shows both digests, when the image here is not the locked one."""
    if locked.digest not in image.digests:
        check_digest(locked, image.id, hint=f"docker pull {locked.name}")


def _names(row: dict[str, Any]) -> list[str]:
    return [name for name in row.get("RepoTags") or [] if name != _NO_NAME] or [""]


def _local(row: dict[str, Any], reference: str) -> LocalImage:
    labels = row.get("Labels") or {}
    digests = {digest.rpartition("@")[2] for digest in row.get("RepoDigests") or []}
    return LocalImage(
        reference=reference,
        id=row["Id"],
        digests=tuple(sorted({*digests, row["Id"]})),
        variant=labels[f"{LABEL}variant"],
        version=labels.get(f"{LABEL}version", ""),
        revision=labels.get("org.opencontainers.image.revision", ""),
        created_at=float(row.get("Created", 0)),
        size_mb=round(row.get("Size", 0) / 1e6),
    )
