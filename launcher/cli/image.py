"""`vastrun image`: the images that boxes train in, built, pushed, locked by digest, verified, listed."""

from __future__ import annotations

from dataclasses import replace

import click

from vastrun.launcher import __version__
from vastrun.launcher.bundle.checkout import commit_of
from vastrun.launcher.cli.options import json_option
from vastrun.launcher.cli.output import say, show
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.image.build import Recipe, build
from vastrun.launcher.image.daemon import connect, login_of
from vastrun.launcher.image.local import images_here
from vastrun.launcher.image.lock import Capability, read_lock, write_lock
from vastrun.launcher.image.pins import CHECKOUT, VARIANTS, pins_of
from vastrun.launcher.image.registry import Registry
from vastrun.launcher.image.relock import lock_anew, reference_of, relock
from vastrun.launcher.image.stream import push
from vastrun.launcher.image.verify import check_registry, checks, contents_of, subject_of
from vastrun.launcher.ui.render.images import Images, ShownImage, VerifiedImage, checks_text, images_text
from vastrun.launcher.wiring import Wiring


@click.group("image")
def command() -> None:
    """Build, push, lock, verify and list the container images.

    A run names its image by digest: the lock says which one fits a machine.
    """


@command.command("build")
@click.option("--variant", type=click.Choice(VARIANTS), default="cu130", show_default=True)
@click.option("--repository", default="vastrun", show_default=True, help="What it is called, without a tag.")
@click.option("--base", metavar="IMAGE", help="Build on this image instead of the Dockerfile's.")
@click.pass_obj
def build_command(wiring: Wiring, variant: str, repository: str, base: str | None) -> None:
    """Build an image from this checkout and print its name.

    The tag is the hash of all that goes in: the same files make the same tag.
    """
    pins = pins_of(variant)
    commit, dirty = commit_of(CHECKOUT)
    recipe = Recipe(
        root=CHECKOUT,
        pins=replace(pins, base=str(reference_of(base))) if base else pins,
        repository=str(reference_of(repository)),
        version=__version__,
        revision=f"{commit or 'unknown'}{'-dirty' if dirty else ''}",
    )
    screen = wiring.plain_screen()
    say(build(connect(), recipe, wiring.cache / "wheels", screen))


@command.command("push")
@click.argument("image")
@click.argument("repository", required=False)
@click.pass_obj
def push_command(wiring: Wiring, image: str, repository: str | None) -> None:
    """Push IMAGE to its registry and print its name with its digest.

    With REPOSITORY it goes there. Logs in as `docker login` did.
    """
    reference = reference_of(image)
    to = reference_of(repository).name if repository else reference.name
    click.echo(push(connect(), reference, to, wiring.plain_screen()))


@command.command("lock")
@click.argument("images", nargs=-1, metavar="[[VARIANT=]IMAGE]...")
@click.pass_obj
def lock_command(wiring: Wiring, images: tuple[str, ...]) -> None:
    """Write the digest that a registry has for IMAGE into the lock.

    Without IMAGE: check the images in the lock again, and refuse one whose tag now names another image. An
    image that is not ours needs its VARIANT.
    """
    old, registry = read_lock(wiring.image_lock), Registry(login_of)
    new = lock_anew(old, images, registry) if images else relock(old, registry)
    write_lock(wiring.image_lock, new)
    say(f"{wiring.image_lock} is written", err=True)
    say(images_text(new, (), ""))


@command.command("verify")
@click.argument("image")
@click.option("--cuda-max", type=float, help="The newest CUDA of a host's driver, as an offer states it.")
@click.option("--compute-cap", type=int, help="Of its GPUs, as an offer states it: 890 is 8.9.")
@json_option
@click.pass_context
def verify_command(
    ctx: click.Context, image: str, cuda_max: float | None, compute_cap: int | None, as_json: bool
) -> None:
    """Run IMAGE and compare what it has with its pins.

    IMAGE is a variant of the lock or any name. One whose tag names another image than was locked is refused.
    Exit code 1 when a check fails.
    """
    wiring: Wiring = ctx.obj
    subject = subject_of(image, read_lock(wiring.image_lock))
    if (cuda_max is None) != (compute_cap is None):
        raise click.UsageError("--cuda-max and --compute-cap go together")
    machine = None
    if cuda_max is not None and compute_cap is not None:
        machine = Capability(cuda_max=cuda_max, compute_cap=compute_cap)
    screen = wiring.plain_screen()
    client = connect()
    check_registry(subject, Registry(login_of))
    rows = checks(contents_of(client, subject.reference, screen), subject.locked, __version__, machine)
    holds = all(row.holds for row in rows)
    document = VerifiedImage(image=str(subject.reference), holds=holds, checks=rows)
    show(document, checks_text(rows), as_json=as_json)
    ctx.exit(0 if holds else 1)


@command.command("ls")
@json_option
@click.pass_obj
def ls_command(wiring: Wiring, as_json: bool) -> None:
    """List the images of the lock, and those that Docker has here."""
    lock = read_lock(wiring.image_lock)
    try:
        here, note = images_here(connect()), ""
    except ImageError as error:
        here, note = [], str(error)
    locked = [ShownImage.fill(image, variant=variant) for variant, image in lock.images.items()]
    document = Images(locked=locked, here=here, note=note)
    show(document, images_text(lock, here, note), as_json=as_json)
