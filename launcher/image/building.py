"""Building an image: its tag is the hash of all that goes in, so that the same files make the same tag."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.core.errors import ImageError
from launcher.core.image_ref import Reference
from launcher.image.context import files_of, fingerprint, write_context
from launcher.image.daemon import explained
from launcher.image.pins import Pins
from launcher.image.pulling import have, is_here
from launcher.image.stream import BuildScreen, follow
from launcher.image.wheels import fetch, interpreter_of

if TYPE_CHECKING:
    from docker import DockerClient

_REQUIREMENTS = ("trainer/requirements.txt", "requirements/image.txt", "requirements/build.txt")
_TORCH_FOR_CPU = "requirements/torch-cpu.txt"


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What to build, and from what."""

    root: Path
    """The checkout."""
    pins: Pins
    repository: str
    """What the image is called, without a tag."""
    version: str
    revision: str
    """The commit."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The files that pin its packages, in the checkout."""
        return _REQUIREMENTS if self.pins.cuda else (*_REQUIREMENTS, _TORCH_FOR_CPU)


def build(client: DockerClient, recipe: Recipe, wheels: Path, screen: BuildScreen) -> str:
    """The reference of the image, which is there. `wheels`: a folder to keep them in. Raises ImageError."""
    base = _base(client, recipe.pins.base, screen)
    arguments = _arguments(recipe, base)
    paths = files_of(recipe.root)
    # The commit is only told: the same files are the same image.
    made_of = {name: value for name, value in arguments.items() if name != "REVISION"}
    tag = f"{recipe.pins.variant}-{fingerprint(recipe.root, paths, made_of)}"
    reference = f"{recipe.repository}:{tag}"
    if is_here(client, Reference.of(reference)):
        screen.step("build", f"{reference} is here already, of the same files")
        return reference
    folder = _wheels(client, recipe, base, wheels, screen)
    with tempfile.TemporaryDirectory(prefix="vastrun-image-") as scratch:
        context = Path(scratch) / "context.tar.gz"
        write_context(context, recipe.root, paths, folder)
        screen.step("context", f"{len(paths)} files and the wheels, {context.stat().st_size / 1e6:.0f} MB")
        _run(client, recipe, context, arguments, reference, screen)
    screen.step("build", reference)
    return reference


def _base(client: DockerClient, name: str, screen: BuildScreen) -> str:
    """The base by what cannot change."""
    reference = Reference.of(name)
    have(client, reference, screen)
    if reference.is_pinned:
        return name
    with explained(f"cannot inspect {name}"):
        image = client.images.get(name)
    digests = image.attrs.get("RepoDigests") or []
    return next((digest for digest in digests if digest.startswith(f"{reference.name}@")), str(image.id))


def _wheels(client: DockerClient, recipe: Recipe, base: str, cache: Path, screen: BuildScreen) -> Path:
    """The folder with what the image's Python needs, and nothing else."""
    interpreter = interpreter_of(client, base)
    version = "{}.{}".format(*interpreter.version)
    python = {"python": version, "glibc": interpreter.glibc, "machine": interpreter.machine}
    folder = cache / fingerprint(recipe.root, recipe.requirements, python)
    screen.step("wheels", f"for Python {version}, into {folder}")
    fetch([recipe.root / name for name in recipe.requirements], interpreter, folder)
    return folder


def _arguments(recipe: Recipe, base: str) -> Mapping[str, str]:
    pins = recipe.pins
    return {
        "BASE": base,
        "BASE_NAME": pins.base,
        "TORCH": pins.torch,
        "CUDA": pins.cuda,
        "NCCL": pins.nccl,
        "VARIANT": pins.variant,
        "VERSION": recipe.version,
        "REVISION": recipe.revision,
    }


def _run(
    client: DockerClient,
    recipe: Recipe,
    context: Path,
    arguments: Mapping[str, str],
    reference: str,
    screen: BuildScreen,
) -> None:
    doing = f"cannot build {recipe.pins.variant}"
    with context.open("rb") as file, explained(doing):
        messages = client.api.build(
            fileobj=file,
            custom_context=True,
            encoding="gzip",
            tag=reference,
            target=recipe.pins.target,
            buildargs=dict(arguments),
            rm=True,
            forcerm=True,
            decode=True,
            timeout=None,
        )
        told = follow(messages, screen, name="build", doing=doing)
    if not any("ID" in record for record in told):
        raise ImageError(f"{doing}: the daemon named no image")
