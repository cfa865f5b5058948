"""`vastrun image`: build, publish, push, lock, verify and list the container images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import click

from vastrun.launcher import __version__
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.bundle.checkout import commit_of
from vastrun.launcher.cli.options import json_option
from vastrun.launcher.cli.output import say, show
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.image.build import BuildRecipe, build
from vastrun.launcher.image.daemon import connect, login_of, push
from vastrun.launcher.image.lock import Capability, Lock, LockedImage, read_lock, write_lock
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
from vastrun.launcher.image.verify import (
    ImageCheck,
    LocalImage,
    check_registry,
    checks,
    contents_of,
    image_to_verify,
    local_images,
)
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.render.amounts import moment
from vastrun.launcher.ui.render.table import short, table

_DIGEST_CHARACTERS = 19
"""`sha256:` and enough of the hash to distinguish images."""


@click.group("image")
def command() -> None:
    """Build, publish, push, lock, verify and list the container images.

    A run uses an image by its digest; the lock file lists the images by the machines that they fit.
    """


@command.command("build")
@click.option("--variant", type=click.Choice(VARIANTS), default="cu130", show_default=True)
@click.option("--repository", default="vastrun", show_default=True, help="Name of the image, without a tag.")
@click.option("--base", metavar="IMAGE", help="Build on this image instead of the Dockerfile's.")
@click.pass_obj
def build_command(app: AppContext, variant: str, repository: str, base: str | None) -> None:
    """Build an image from this checkout and print its name.

    The tag is the hash of the inputs: the same files give the same tag.
    """
    say(_build(app, variant, repository, base))


def _build(app: AppContext, variant: str, repository: str, base: str | None) -> str:
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
    screen = app.plain_screen()
    return build(connect(), recipe, app.paths.cache / "wheels", screen)


@command.command("publish")
@click.option("--variant", type=click.Choice(VARIANTS), default="cu130", show_default=True)
@click.option("--repository", required=True, help="Where to push it, such as registry.example/lab/vastrun.")
@click.option("--base", metavar="IMAGE", help="Build on this image instead of the Dockerfile's.")
@click.pass_obj
def publish_command(app: AppContext, variant: str, repository: str, base: str | None) -> None:
    """Build an image from this checkout, push it, and lock it.

    Does what build, push and lock do, and prints the image with its digest. Later runs on machines that it
    fits use it.
    """
    image = _build(app, variant, repository, base)
    pushed = push(connect(), reference_of(image), reference_of(image).name, app.plain_screen())
    new = lock_images(read_lock(app.paths.image_lock), [pushed.tagged], Registry(login_of))
    check_digest(new.images[variant], pushed.digest)
    write_lock(app.paths.image_lock, new)
    say(f"wrote {app.paths.image_lock}", err=True)
    say(str(pushed))


@command.command("lock")
@click.argument("images", nargs=-1, metavar="[[VARIANT=]IMAGE]...")
@click.pass_obj
def lock_command(app: AppContext, images: tuple[str, ...]) -> None:
    """Write the digest of IMAGE in its registry to the lock file.

    Without IMAGE, check the locked images again, and fail if a tag now names another image. An image that
    vastrun did not build needs its VARIANT.
    """
    old, registry = read_lock(app.paths.image_lock), Registry(login_of)
    new = lock_images(old, images, registry) if images else relock(old, registry)
    write_lock(app.paths.image_lock, new)
    say(f"wrote {app.paths.image_lock}", err=True)
    say(images_text(new, (), ""))


@command.command("verify")
@click.argument("image")
@click.option("--cuda-max", type=float, help="Newest CUDA version of a host's driver, as in an offer.")
@click.option("--compute-cap", type=int, help="Compute capability of its GPUs, as in an offer: 890 is 8.9.")
@json_option
@click.pass_context
def verify_command(
    ctx: click.Context, image: str, cuda_max: float | None, compute_cap: int | None, as_json: bool
) -> None:
    """Run IMAGE and compare its contents with the pinned versions.

    IMAGE is a variant of the lock file or any image name. Fails if its tag names another image than the
    locked one. Exit code 1 if a check fails.
    """
    app: AppContext = ctx.obj
    subject = image_to_verify(image, read_lock(app.paths.image_lock))
    if (cuda_max is None) != (compute_cap is None):
        raise click.UsageError("--cuda-max and --compute-cap go together")
    machine = None
    if cuda_max is not None and compute_cap is not None:
        machine = Capability(cuda_max=cuda_max, compute_cap=compute_cap)
    screen = app.plain_screen()
    client = connect()
    check_registry(subject, Registry(login_of))
    rows = checks(contents_of(client, subject.reference, screen), subject.locked, __version__, machine)
    holds = all(row.holds for row in rows)
    document = ImageVerification(image=str(subject.reference), holds=holds, checks=rows)
    show(document, checks_text(rows), as_json=as_json)
    ctx.exit(0 if holds else 1)


@command.command("ls")
@json_option
@click.pass_obj
def ls_command(app: AppContext, as_json: bool) -> None:
    """List the locked images, and the images in the local Docker."""
    lock = read_lock(app.paths.image_lock)
    try:
        here, note = local_images(connect()), ""
    except ImageError as error:
        here, note = [], str(error)
    locked = [ImageDocument.fill(image, variant=variant) for variant, image in lock.images.items()]
    document = Images(locked=locked, here=here, note=note)
    show(document, images_text(lock, here, note), as_json=as_json)


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
        (
            variant,
            image.name,
            short(image.digest, _DIGEST_CHARACTERS),
            _mb_text(image.size_mb),
            _needs(image),
        )
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


def _mb_text(size_mb: int | None) -> str:
    return "?" if size_mb is None else str(size_mb)


def _needs(image: LockedImage) -> str:
    if image.cuda is None:
        return "no GPU"
    return f"CUDA {image.driver_cuda:g}{'' if image.blackwell else ', no Blackwell'}"
