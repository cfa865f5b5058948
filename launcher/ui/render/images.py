"""`image ls` and `image verify`, as text and as documents."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.image.local import LocalImage
from vastrun.launcher.image.lock import Lock, LockedImage
from vastrun.launcher.image.verify import ImageCheck
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.render.amounts import moment
from vastrun.launcher.ui.render.table import short, table

_DIGEST_CHARACTERS = 19
"""`sha256:` and enough of the hash to distinguish images."""


class ImageDocument(Document, LockedImage):
    """An image of the lock."""

    printed_properties = ("reference",)

    variant: str


class Images(Document):
    """The images of the lock, and those on this computer."""

    locked: Sequence[ImageDocument]
    here: Sequence[LocalImage]
    note: str


class ImageVerification(Document):
    """The checks of an image."""

    image: str
    holds: bool
    checks: Sequence[ImageCheck]


def images_text(lock: Lock, here: Sequence[LocalImage], note: str) -> str:
    """Write the locked images, and the images in the local Docker."""
    locked = [
        (variant, image.name, short(image.digest, _DIGEST_CHARACTERS), _size(image.size_mb), _needs(image))
        for variant, image in lock.images.items()
    ]
    parts = [table(("LOCKED", "IMAGE", "DIGEST", "MB", "NEEDS"), locked, right=(3,))]
    built = [
        (
            image.variant,
            image.reference or "<none>",
            short(image.id, _DIGEST_CHARACTERS),
            str(image.size_mb),
            moment(image.created_at),
        )
        for image in here
    ]
    if built:
        parts.append(table(("HERE", "IMAGE", "ID", "MB", "MADE"), built, right=(3,)))
    parts += [note] if note else []
    return "\n\n".join(parts)


def checks_text(checks: Sequence[ImageCheck]) -> str:
    """Write one line for each check."""
    rows = [(_verdict(check), check.name, check.found, check.wanted) for check in checks]
    return table(("", "WHAT", "FOUND", "EXPECTED"), rows)


def _verdict(check: ImageCheck) -> str:
    return "ok" if check.holds else "FAIL"


def _size(size_mb: int | None) -> str:
    return "?" if size_mb is None else str(size_mb)


def _needs(image: LockedImage) -> str:
    if image.cuda is None:
        return "no GPU"
    return f"CUDA {image.driver_cuda:g}{'' if image.blackwell else ', no Blackwell'}"
