"""With a real daemon and a real registry: built, pushed, locked, and changed behind its tag."""

import fcntl
import itertools
import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.launcher.image.fake_registry import Watcher
from tests.parts import BASE_IMAGE
from vastrun.launcher.cli import cli
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.image.build import BuildRecipe, build
from vastrun.launcher.image.daemon import connect, newest_local_image, push
from vastrun.launcher.image.lock import read_lock
from vastrun.launcher.image.relock import Pins

pytestmark = pytest.mark.needs("docker")

SECRET = "s3cret-of-a-user"
DOCKERFILE = """\
ARG BASE
FROM ${BASE} AS cpu
COPY . /all
RUN env >/env && ! ls /missing
ARG REVISION
LABEL io.vastrun.variant=cpu io.vastrun.torch=9.9 io.vastrun.cuda= io.vastrun.nccl=
"""


@pytest.fixture
def client() -> Iterator[Any]:
    client = connect()
    yield client
    client.close()


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """One test at a time builds an image: some ask for the newest one here."""
    with (Path(tempfile.gettempdir()) / f"vastrun-tests-images-{os.getuid()}").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


@pytest.fixture
def repository(client: Any) -> Iterator[str]:
    """A name that is this test's own. Nothing by that name is left."""
    name = f"127.0.0.1:5000/tests/image-{os.getpid()}-{next(_numbers)}"
    yield name
    # Those without a tag come last: an image cannot be removed before those that were made of it.
    for image in sorted(client.images.list(name), key=lambda image: not image.tags):
        for tag in [tag for tag in image.tags if tag.startswith(name)] or [image.id]:
            client.images.remove(tag, force=True)


_numbers = itertools.count()


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what the recipe pins, which is nothing, is fetched once."""
    return tmp_path_factory.mktemp("wheels")


@pytest.fixture
def recipe(tmp_path: Path, repository: str) -> BuildRecipe:
    """A checkout that is quickly built, for an image with no torch."""
    (tmp_path / ".dockerignore").write_text("*\n!Dockerfile\n!launcher\n")
    (tmp_path / "Dockerfile").write_text(DOCKERFILE)
    for name in (
        "trainer/requirements",
        "requirements/image",
        "requirements/build",
        "requirements/torch-cpu",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.txt").write_text("# none\n")
    (tmp_path / "launcher").mkdir()
    # Not what an earlier run has built, which Docker still knows: that would not be the newest.
    (tmp_path / "launcher/package_files.py").write_text(f"x = {uuid.uuid4().hex!r}\n")
    pins = Pins(variant="cpu", base=BASE_IMAGE, torch="9.9", cuda="", nccl="")
    return BuildRecipe(root=tmp_path, pins=pins, repository=repository, version="0", revision="a")


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "image.lock"
    path.write_text("version: 1\nimages: {}\n")
    monkeypatch.setenv("VASTRUN_IMAGE_LOCK", str(path))
    return path


def vastrun(*words: str) -> Result:
    return CliRunner().invoke(cli, ["image", *words])


def test_equal_files_have_one_tag_and_one_build(client: Any, recipe: BuildRecipe, wheels: Path) -> None:
    first, second, third = Watcher(), Watcher(), Watcher()
    made = build(client, recipe, wheels, first)
    assert build(client, replace(recipe, revision="b"), wheels, second) == made
    assert any(text.startswith("1/") or " FROM " in text for _, text in first.steps)
    assert second.steps == [("build", f"{made} is here already, built from the same files")]
    (recipe.root / "launcher/package_files.py").write_text("x = 2\n")
    assert build(client, recipe, wheels, third) != made


def test_no_secret_of_the_computer_that_builds_gets_into_the_image(
    client: Any, recipe: BuildRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VAST_API_KEY", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, SECRET)
    monkeypatch.setenv("PIP_INDEX_URL", f"https://heron:{SECRET}@packages.example/simple")
    (recipe.root / "secrets.env").write_text(SECRET)
    made = build(client, recipe, tmp_path / "wheels", Watcher())
    kept = str(client.api.history(made)) + str(client.images.get(made).attrs)
    kept += client.containers.run(
        made, ["-c", "cat /env; find /all -type f -exec cat {} +"], entrypoint="sh", remove=True
    ).decode()
    assert (recipe.root / "launcher/package_files.py").read_text().strip() in kept
    assert SECRET not in kept


def test_a_failed_build_shows_its_commands_output(client: Any, recipe: BuildRecipe, wheels: Path) -> None:
    (recipe.root / "Dockerfile").write_text(DOCKERFILE.replace("! ls /missing", "ls /missing"))
    with pytest.raises(ImageError, match="a command of the Dockerfile failed") as caught:
        build(client, recipe, wheels, Watcher())
    assert "cannot access '/missing'" in str(caught.value)


def test_an_image_that_was_changed_behind_its_tag_is_refused_with_both_digests(
    client: Any, recipe: BuildRecipe, repository: str, lock: Path, wheels: Path
) -> None:
    made = build(client, recipe, wheels, Watcher())
    pushed = str(push(client, ImageReference.of(made), Watcher()))
    assert vastrun("lock", made).exit_code == 0
    locked = read_lock(lock).images["cpu"]
    assert (locked.reference, locked.torch, locked.cuda, locked.whole) == (pushed, "9.9", None, True)
    assert vastrun("lock").exit_code == 0
    assert (
        locked.digest in (newest_local_image(client, "cpu", read_lock(lock)) or pytest.fail("none")).digests
    )

    repository, _, tag = made.rpartition(":")
    container = client.containers.create(made, ["true"])
    container.commit(repository=repository, tag=tag, changes="LABEL changed=1")
    container.remove()
    with pytest.raises(ImageError, match=f"(?s)locked: {locked.digest}\nfound:  sha256:"):
        newest_local_image(client, "cpu", read_lock(lock))
    changed = push(client, ImageReference.of(made), Watcher()).digest
    refused = vastrun("lock")
    assert refused.exit_code == 1
    assert f"locked: {locked.digest}\nfound:  {changed}\n" in refused.stderr


@pytest.mark.timeout(900)
def test_the_image_of_this_checkout_has_all_that_it_promises(client: Any) -> None:
    made = vastrun("build", "--variant", "cpu", "--base", BASE_IMAGE)
    assert made.exit_code == 0, made.stderr
    image = made.stdout.strip()
    words = ["-m", "vastrun.onstart.boot.image_contents", "torch=2.13.0"]
    found = json.loads(client.containers.run(image, words, entrypoint="python3", remove=True))
    assert (found["torch"], found["missing"]) == ("2.13.0+cpu", [])
    said = client.containers.run(
        image,
        ["-c", "ls /etc/ssh/ssh_host_*; command -v gcc cc c++ make; printenv PATH; cat /proc/1/comm"],
        entrypoint=["tini", "--", "sh"],
        remove=True,
    )
    assert said.decode().split() == [
        "/opt/vastrun/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "tini",
    ]
