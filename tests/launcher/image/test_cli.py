"""`vastrun image` where no Docker is needed, or none is there."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("docker")

from click.testing import CliRunner, Result

from tests.launcher.image.fake_registry import PASSWORD, USER, FakeRegistry, digest
from tests.launcher.image.test_lock import OURS
from tests.launcher.providers.docker.daemon import FakeDaemon, Stream
from vastrun.launcher.cli import cli
from vastrun.launcher.image.lock import read_lock, shipped_lock, write_lock


@pytest.fixture
def lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of the user's own; no Docker, and nobody is logged in anywhere."""
    path = tmp_path / "image.lock"
    write_lock(path, shipped_lock())
    monkeypatch.setenv("VASTRUN_IMAGE_LOCK", str(path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return path


@pytest.fixture
def fake_registry() -> Iterator[FakeRegistry]:
    with FakeRegistry("Bearer") as fake_registry:
        yield fake_registry


def vastrun(*words: str) -> Result:
    return CliRunner().invoke(cli, ["image", *words])


def test_the_lock_is_listed_without_docker(lock: Path) -> None:
    end = vastrun("ls")
    assert end.exit_code == 0
    assert "cu126   pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime" in end.stdout
    document = json.loads(vastrun("ls", "--json").stdout)
    assert [image["variant"] for image in document["locked"]] == ["cu130", "cu126"]
    assert document["locked"][0]["reference"] == shipped_lock().images["cu130"].reference


def test_every_command_is_said_in_a_whole_sentence() -> None:
    said = vastrun("--help").stdout
    assert "..." not in said.partition("Commands:")[2]
    for name in ("build", "lock", "ls", "publish"):
        assert f"\n  {name} " in said
        assert all(len(line) <= 80 for line in vastrun(name, "--help").stdout.splitlines())


def test_an_image_is_locked_with_the_login_of_docker_and_without_a_daemon(
    lock: Path, fake_registry: FakeRegistry
) -> None:
    fake_registry.put("lab/vastrun:cu130-1", labels=OURS)
    name = f"{fake_registry.host}/lab/vastrun:cu130-1"
    refused = vastrun("lock", name)
    assert refused.exit_code == 1
    assert f"docker login {fake_registry.host}" in refused.stderr
    assert read_lock(lock) == shipped_lock()

    login = {"auths": {fake_registry.host: {"username": USER, "password": PASSWORD, "auth": _basic()}}}
    (lock.parent / "config.json").write_text(json.dumps(login))
    assert vastrun("lock", name).exit_code == 0
    assert read_lock(lock).images["cu130"].name == name
    assert PASSWORD not in lock.read_text()


def test_an_image_is_built_pushed_and_locked_by_one_command(
    lock: Path, fake_registry: FakeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    login = {"auths": {fake_registry.host: {"username": USER, "password": PASSWORD, "auth": _basic()}}}
    (tmp_path / "config.json").write_text(json.dumps(login))
    present = (200, {"Id": digest(b"image"), "RepoTags": [], "RepoDigests": []})
    answers = {
        "GET /_ping": (200, b"OK"),
        "GET /images/.*/json": present,  # what these files make was built before
    }
    options = ("--variant", "cu130", "--repository", f"{fake_registry.host}/lab/vastrun")
    with FakeDaemon(tmp_path, answers) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        built = vastrun("build", *options).stdout.strip()
        pushed = fake_registry.put(built.partition("/")[2], labels=OURS)
        daemon.answers["POST /images/.*/push"] = (200, Stream([{"aux": {"Digest": pushed}}]))
        end = vastrun("publish", *options)
        assert end.exit_code == 0, end.output
        assert end.stdout == f"{built}@{pushed}\n"
        assert read_lock(lock).images["cu130"].reference == f"{built}@{pushed}"

        other = digest(b"another one")
        daemon.answers["POST /images/.*/push"] = (200, Stream([{"aux": {"Digest": other}}]))
        write_lock(lock, shipped_lock())
        end = vastrun("publish", *options)
        assert end.exit_code == 1
        assert other in end.stderr and pushed in end.stderr
        assert read_lock(lock) == shipped_lock()


def _basic() -> str:
    return base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("build",), 1, "there is no Docker"),
        (("build", "--variant", "cu999"), 2, "--variant: 'cu999' is not one of"),
        (("build", "--base", "NO"), 2, "expected an image like"),
    ],
)
def test_what_cannot_be_done_is_one_line(lock: Path, words: tuple[str, ...], status: int, said: str) -> None:
    end = vastrun(*words)
    assert end.exit_code == status
    assert said in end.stderr
