"""`vastrun image`: build, publish, lock and list the container images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from vastrun.launcher import __version__
from vastrun.launcher.app import App
from vastrun.launcher.bundle.checkout import commit_of
from vastrun.launcher.cli.options import json_option
from vastrun.launcher.cli.output import note, say, show
from vastrun.launcher.image.build import BuildRecipe, build
from vastrun.launcher.image.daemon import connect, login_of, push
from vastrun.launcher.image.lock import Lock, LockedImage, read_lock, write_lock
from vastrun.launcher.image.registry import Registry
from vastrun.launcher.image.relock import (
    CHECKOUT,
    VARIANTS,
    check_digest,
    lock_images,
    pins_of,
    reference_of,
    relock,
)
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import short, table

_DIGEST_CHARACTERS = 19
"""`sha256:` and enough of the hash to distinguish images."""


@click.group("image")
def command() -> None:
    """Build, publish, lock and list the container images.

    A run uses an image by its digest; the lock file lists the images by the machines that they fit.
    """


@command.command("build")
@click.option("--variant", type=click.Choice(VARIANTS), default="cu130", show_default=True)
@click.option("--repository", default="vastrun", show_default=True, help="Name of the image, without a tag.")
@click.option("--base", metavar="IMAGE", help="Build on this image instead of the Dockerfile's.")
@click.pass_obj
def build_command(app: App, variant: str, repository: str, base: str | None) -> None:
    """Build an image from this checkout and print its name.

    The tag is the hash of the inputs: the same files give the same tag.
    """
    say(_build(app, variant, repository, base))


def _build(app: App, variant: str, repository: str, base: str | None) -> str:
    """Build an image of this checkout, and return its name."""
    pins = pins_of(variant)
    commit, dirty = commit_of(CHECKOUT)
    recipe = BuildRecipe(
        root=CHECKOUT,
        pins=replace(pins, base=str(reference_of(base))) if base else pins,
        repository=str(reference_of(repository)),
        version=__version__,
        revision=f"{commit or 'unknown'}{'-dirty' if dirty else ''}",
    )
    return build(connect(), recipe, app.cache / "wheels", app.plain_screen())


@command.command("publish")
@click.option("--variant", type=click.Choice(VARIANTS), default="cu130", show_default=True)
@click.option("--repository", required=True, help="Where to push it, such as registry.example/lab/vastrun.")
@click.option("--base", metavar="IMAGE", help="Build on this image instead of the Dockerfile's.")
@click.pass_obj
def publish_command(app: App, variant: str, repository: str, base: str | None) -> None:
    """Build an image from this checkout, push it, and lock it.

    Prints the image with its digest. Pushes with the credentials of `docker login`. Later runs on machines
    that it fits use it.
    """
    image = reference_of(_build(app, variant, repository, base))
    pushed = push(connect(), image, app.plain_screen())
    new = lock_images(read_lock(app.image_lock), [pushed.tagged], Registry(login_of))
    check_digest(new.images[variant], pushed.digest)
    write_lock(app.image_lock, new)
    note(f"wrote {app.image_lock}")
    say(str(pushed))


@command.command("lock")
@click.argument("images", nargs=-1, metavar="[[VARIANT=]IMAGE]...")
@click.pass_obj
def lock_command(app: App, images: tuple[str, ...]) -> None:
    """Write the digest of IMAGE in its registry to the lock file.

    Without IMAGE, check the locked images again, and fail if a tag now names another image. An image that
    vastrun did not build needs its VARIANT.
    """
    old, registry = read_lock(app.image_lock), Registry(login_of)
    new = lock_images(old, images, registry) if images else relock(old, registry)
    write_lock(app.image_lock, new)
    note(f"wrote {app.image_lock}")
    say(images_text(new))


@command.command("ls")
@json_option
@click.pass_obj
def ls_command(app: App, as_json: bool) -> None:
    """List the locked images. Docker itself lists those that it has: docker image ls."""
    lock = read_lock(app.image_lock)
    locked = [ImageDocument.fill(image, variant=variant) for variant, image in lock.images.items()]
    show(Images(locked=locked), images_text(lock), as_json=as_json)


class ImageDocument(Document, LockedImage):
    """An image of the lock."""

    printed_properties = ("reference",)

    variant: str


class Images(Document):
    """The images of the lock."""

    locked: Sequence[ImageDocument]


def images_text(lock: Lock) -> str:
    """Write the locked images."""
    locked = [
        (
            variant,
            image.name,
            short(image.digest, _DIGEST_CHARACTERS),
            "?" if image.size_mb is None else str(image.size_mb),
            "no GPU"
            if image.cuda is None
            else f"CUDA {image.driver_cuda:g}{'' if image.blackwell else ', no Blackwell'}",
        )
        for variant, image in lock.images.items()
    ]
    return table(("LOCKED", "IMAGE", "DIGEST", "MB", "NEEDS"), locked, right=(3,))
