"""Images on this computer: which it has, and whether one contains the pinned versions and fits a machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.image.daemon import BuildScreen, docker_errors, pull_if_missing
from vastrun.launcher.image.lock import Capability, Lock, LockedImage
from vastrun.launcher.image.relock import LABEL, ImageCatalog, check_digest, reference_of
from vastrun.launcher.package_files import trainer_dir

if TYPE_CHECKING:
    from docker import DockerClient

_TEXTS = ("torch", "cuda", "nccl", "python", "vastrun")
"""Fields of what an image says of itself, each a text or null."""
_NO_NAME = "<none>:<none>"


@dataclass(frozen=True, kw_only=True)
class ImageCheck:
    """One thing that was compared."""

    name: str
    found: str
    wanted: str
    """Empty: nothing was wanted."""
    holds: bool


@dataclass(frozen=True, kw_only=True)
class ImageToVerify:
    """Image to verify."""

    reference: ImageReference
    locked: LockedImage | None
    """Locked image to compare with; None: it is in no lock."""


def image_to_verify(word: str, lock: Lock) -> ImageToVerify:
    """Return a variant of the lock, one of its images by name, or any other image. Raises UsageError."""
    locked = lock.images.get(word) or next((i for i in lock.images.values() if i.name == word), None)
    return ImageToVerify(reference=reference_of(locked.reference if locked else word), locked=locked)


def check_registry(subject: ImageToVerify, registry: ImageCatalog) -> None:
    """Raise ImageError, which shows both digests, when the tag names another image than was locked."""
    if subject.locked is not None:
        check_digest(subject.locked, registry.look_up(subject.reference).reference.digest)


def contents_of(client: DockerClient, reference: ImageReference, screen: BuildScreen) -> Mapping[str, Any]:
    """Return what the image has, by `boot/image_contents.py`; pulled where it is not here.

    Raises ImageError.
    """
    pull_if_missing(client, reference, screen)
    screen.step("run", str(reference))
    program = (trainer_dir() / "boot" / "image_contents.py").read_text(encoding="utf-8")
    with docker_errors(f"cannot run {reference}"):
        # No network: what is verified is what lies in the image, and it may be a stranger's.
        message = client.containers.run(
            str(reference), ["-c", program], entrypoint="python3", remove=True, network_mode="none"
        )
    try:
        return contents_in(message.decode())
    except ValueError as error:
        raise ImageError(f"{reference} printed no valid list of its contents: {message!r}"[:600]) from error


def contents_in(output: str) -> Mapping[str, Any]:
    """Return what an image says of itself in its last line. Raises ValueError where that makes no sense."""
    try:
        found = json.loads(output.strip().rpartition("\n")[2])
    except RecursionError as error:
        raise ValueError("too deep") from error
    missing = found.get("missing") if isinstance(found, dict) else None
    if not isinstance(missing, list) or not all(isinstance(name, str) for name in missing):
        raise ValueError("no list of missing packages")
    texts = {name: found.get(name) for name in _TEXTS}
    if not all(value is None or isinstance(value, str) for value in texts.values()):
        raise ValueError("a version that is not text")
    return {**texts, "python": texts["python"] or "unknown", "missing": missing}


def checks(
    found: Mapping[str, Any], locked: LockedImage | None, version: str, machine: Capability | None
) -> list[ImageCheck]:
    """Compare what the image has with what it should have; and whether it runs on the machine."""
    wanted = {} if locked is None else {"torch": locked.torch, "cuda": locked.cuda, "nccl": locked.nccl}
    rows = [_version(name, found.get(name), wanted.get(name) or "") for name in ("torch", "cuda", "nccl")]
    rows.append(ImageCheck(name="python", found=found["python"], wanted="", holds=True))
    if locked is None or locked.whole:
        rows.append(_version("vastrun", found["vastrun"], version))
    missing = ", ".join(found["missing"])
    whole = locked is None or locked.whole
    rows.append(
        ImageCheck(name="missing", found=missing or "nothing", wanted="", holds=not (whole and missing))
    )
    if machine is not None and locked is not None:
        misfit = locked.misfit(machine)
        rows.append(
            ImageCheck(name="machine", found=misfit or "the image runs there", wanted="", holds=not misfit)
        )
    return rows


def _version(name: str, found: str | None, wanted: str) -> ImageCheck:
    holds = not wanted or (found or "").partition("+")[0] == wanted
    return ImageCheck(name=name, found=found or "none", wanted=wanted, holds=holds)


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
