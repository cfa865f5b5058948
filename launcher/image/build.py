"""Building an image: its tag is the hash of all that goes in, so that the same files make the same tag."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from vastrun.launcher.bundle.archive import Archive
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.image.daemon import BuildScreen, docker_errors, follow, has_image, pull_if_missing
from vastrun.launcher.image.relock import Pins

if TYPE_CHECKING:
    from docker import DockerClient

_REQUIREMENTS = ("trainer/requirements.txt", "requirements/image.txt", "requirements/build.txt")
_TIMEOUT_S = 1800
_OLDEST_GLIBC = 17
_PROBE = (
    "import json, platform, sys; "
    "print(json.dumps([*sys.version_info[:2], platform.libc_ver()[1], platform.machine()]))"
)
"""Program that says which wheels a Python can use."""


@dataclass(frozen=True, kw_only=True)
class BuildRecipe:
    """Inputs of an image build."""

    root: Path
    """The checkout."""
    pins: Pins
    repository: str
    """Name of the image, without a tag."""
    version: str
    revision: str
    """The commit."""

    @property
    def requirements(self) -> tuple[str, ...]:
        """The files that pin its packages, in the checkout."""
        return _REQUIREMENTS if self.pins.cuda else (*_REQUIREMENTS, "requirements/torch-cpu.txt")


def build(client: DockerClient, recipe: BuildRecipe, wheels: Path, screen: BuildScreen) -> str:
    """Build the image and return its reference. `wheels`: a folder to keep them in. Raises ImageError."""
    base = _base(client, recipe.pins.base, screen)
    arguments = {
        "BASE": base,
        "BASE_NAME": recipe.pins.base,
        "TORCH": recipe.pins.torch,
        "CUDA": recipe.pins.cuda,
        "NCCL": recipe.pins.nccl,
        "VARIANT": recipe.pins.variant,
        "VERSION": recipe.version,
        "REVISION": recipe.revision,
    }
    paths = files_of(recipe.root)
    # The commit is only a label: the same files are the same image.
    made_of = {name: value for name, value in arguments.items() if name != "REVISION"}
    tag = f"{recipe.pins.variant}-{fingerprint(recipe.root, paths, made_of)}"
    reference = f"{recipe.repository}:{tag}"
    if has_image(client, ImageReference.of(reference)):
        screen.step("build", f"{reference} is here already, built from the same files")
        return reference
    folder = _wheels(client, recipe, base, wheels, screen)
    with tempfile.TemporaryDirectory(prefix="vastrun-image-") as scratch:
        context = Path(scratch) / "context.tar.gz"
        write_context(context, recipe.root, paths, folder)
        screen.step("context", f"{len(paths)} files and the wheels, {context.stat().st_size / 1e6:.0f} MB")
        doing = f"cannot build {recipe.pins.variant}"
        with context.open("rb") as file, docker_errors(doing):
            messages = client.api.build(
                fileobj=file,
                # The context is packed by us: it holds the files of the fingerprint, and no others.
                custom_context=True,
                encoding="gzip",
                tag=reference,
                target=recipe.pins.target,
                buildargs=arguments,
                rm=True,
                forcerm=True,
                decode=True,
                timeout=None,
            )
            records = follow(messages, screen, name="build", doing=doing)
        if not any("ID" in record for record in records):
            raise ImageError(f"{doing}: the daemon named no image")
    screen.step("build", reference)
    return reference


def _base(client: DockerClient, name: str, screen: BuildScreen) -> str:
    """The base by what cannot change."""
    reference = ImageReference.of(name)
    pull_if_missing(client, reference, screen)
    if reference.is_pinned:
        return name
    with docker_errors(f"cannot inspect {name}"):
        image = client.images.get(name)
    digests = image.attrs.get("RepoDigests") or []
    return next((digest for digest in digests if digest.startswith(f"{reference.name}@")), str(image.id))


def _wheels(client: DockerClient, recipe: BuildRecipe, base: str, cache: Path, screen: BuildScreen) -> Path:
    """The folder with what the image's Python needs, and nothing else."""
    with docker_errors(f"cannot run python3 in {base}"):
        message = client.containers.run(
            base, ["-c", _PROBE], entrypoint="python3", remove=True, network_mode="none"
        )
    major, minor, glibc, machine = json.loads(message)
    python = {"python": f"{major}.{minor}", "glibc": glibc, "machine": machine}
    folder = cache / fingerprint(recipe.root, recipe.requirements, python)
    screen.step("wheels", f"for Python {python['python']}, into {folder}")
    fetch([recipe.root / name for name in recipe.requirements], folder, **python)
    return folder


def files_of(root: Path) -> list[str]:
    """Return the paths of the context, relative to `root`, sorted."""
    from docker.utils.build import exclude_paths

    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line.strip() and not line.startswith("#")]
    return sorted(path for path in exclude_paths(str(root), patterns) if (root / path).is_file())


def fingerprint(root: Path, paths: Iterable[str], arguments: Mapping[str, str]) -> str:
    """Hash all that goes into an image: names, contents, whether it is a program; and the arguments."""
    total = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode())
    try:
        for path in paths:
            content, mode = (root / path).read_bytes(), (root / path).stat().st_mode
            executable = bool(mode & 0o100)
            total.update(f"\0{path}\0{executable}\0{hashlib.sha256(content).hexdigest()}".encode())
    except OSError as error:
        raise ImageError(f"cannot read {error.filename}: {error.strerror}") from error
    return total.hexdigest()[:12]


def write_context(archive_path: Path, root: Path, paths: Iterable[str], wheels: Path) -> None:
    """Write one archive of the files and the wheels.

    Raises ImageError when there is no room.
    """
    try:
        # Wheels are compressed already.
        with Archive(archive_path, compression=0) as archive:
            for path in paths:
                archive.add_file(path, (root / path).resolve())
            for wheel in sorted(wheels.glob("*.whl")):
                archive.add_file(f"wheels/{wheel.name}", wheel.resolve())
    except OSError as error:
        raise ImageError(f"cannot write {archive_path}: {error.strerror}", hint="export TMPDIR=…") from error


def platforms_of(glibc: str, machine: str) -> list[str]:
    """Return the tags of the wheels that a Python with this glibc can use, the newest first."""
    newest = int(glibc.partition(".")[2] or _OLDEST_GLIBC)
    tags = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, _OLDEST_GLIBC - 1, -1)]
    return [*tags, f"manylinux2014_{machine}", f"linux_{machine}"]


def fetch(requirements: Iterable[Path], folder: Path, *, python: str, glibc: str, machine: str) -> None:
    """Fill the folder, once, with the wheels for that Python by their pinned hashes. Raises ImageError."""
    complete = folder / ".complete"
    if complete.exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [word for tag in platforms_of(glibc, machine) for word in ("--platform", tag)]
    for file in requirements:
        command = [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
            *("--dest", str(folder), "--requirement", str(file), "--require-hashes", "--no-deps"),
            *("--only-binary", ":all:", "--implementation", "cp", "--python-version", python, *platforms),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired as error:
            raise ImageError(f"pip takes more than {_TIMEOUT_S / 60:.0f} min for {file.name}") from error
        if done.returncode:
            raise ImageError(
                f"pip cannot download the packages of {file.name}: {done.stderr.strip()[-1000:]}",
                hint="check that this works: python -m pip download pip",
            )
    complete.touch()
