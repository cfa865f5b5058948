"""Docker that is absent, down, full or refused is one clear error each, with what to do."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("docker")

from tests.launcher.image.fake_registry import Watcher, digest
from tests.launcher.providers.docker.daemon import FakeDaemon, Stream
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.image.daemon import connect, follow, image_error, pull_if_missing, push

IMAGE = ImageReference.of("lab/vastrun:cpu-1")
ABSENT = (404, {"message": "No such image: lab/vastrun:cpu-1"})
PRESENT = (200, {"Id": digest(b"image"), "RepoTags": ["lab/vastrun:cpu-1"]})


def told(*messages: dict[str, Any]) -> tuple[int, Stream]:
    return 200, Stream(messages)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with FakeDaemon(tmp_path, {"GET /_ping": (200, b"OK"), "GET /images/.*/json": PRESENT}) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.url)
        monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
        yield daemon


def test_docker_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nowhere.sock")
    with pytest.raises(ImageError) as caught:
        connect()
    said = "cannot reach Docker: there is no Docker on this computer: No such file or directory"
    assert str(caught.value) == said
    assert "install Docker" in caught.value.hint


def test_a_daemon_that_is_down_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(ImageError) as caught:
        connect()
    assert str(caught.value) == "cannot reach Docker: Docker's daemon does not answer: Connection refused"
    assert (
        caught.value.hint
        == "start Docker (sudo systemctl start docker, or Docker Desktop), or check DOCKER_HOST"
    )


@pytest.mark.parametrize(
    ("said", "meaning"),
    [
        ("write /var/lib/docker/tmp/x: no space left on device", "no space is left"),
        ("denied: requested access to the resource is denied", "the registry refuses access"),
        ("unauthorized: authentication required", "the registry refuses access"),
        ("pull access denied for x, repository does not exist or may require 'docker login'", "refuses"),
        ("no matching manifest for linux/amd64 in the manifest list entries", "another architecture"),
        ("manifest for lab/vastrun:cpu-1 not found: manifest unknown: manifest unknown", "no such image"),
        ("dial tcp: lookup registry.example: no such host", "the registry does not answer"),
        ("something that nobody has seen", "something that nobody has seen"),
    ],
)
def test_a_pull_that_fails_says_why(daemon: FakeDaemon, said: str, meaning: str) -> None:
    daemon.answers = {"POST /images/create": told({"status": "Pulling"}, {"error": said})} | daemon.answers
    daemon.answers["GET /images/.*/json"] = ABSENT
    with pytest.raises(ImageError, match=f"cannot pull lab/vastrun:cpu-1: .*{meaning}"):
        pull_if_missing(connect(), IMAGE, Watcher())


def test_a_pull_shows_its_layers_and_an_image_that_is_here_is_not_pulled(daemon: FakeDaemon) -> None:
    watcher = Watcher()
    pull_if_missing(connect(), IMAGE, watcher)
    assert watcher.steps == []

    def layer(status: str, **detail: int) -> dict[str, Any]:
        return {"status": status, "id": "a1", "progressDetail": detail}

    daemon.answers |= {
        "GET /images/.*/json": ABSENT,
        "POST /images/create": told(
            layer("Downloading", current=30_000_000, total=90_000_000), layer("Pull complete")
        ),
    }
    pull_if_missing(connect(), IMAGE, watcher)
    assert watcher.gauges == ["pull: 0 of 1 layers, 30 of 90 MB", "pull: 1 of 1 layers, 30 of 90 MB"]
    assert watcher.steps == [("pull", "lab/vastrun:cpu-1")]


def test_what_was_pushed_is_named_by_the_digest_of_the_registry(daemon: FakeDaemon) -> None:
    pushed = {"Tag": "cpu-1", "Digest": digest(b"pushed"), "Size": 1}
    said = told({"status": "Pushed", "id": "a1", "progressDetail": {}}, {"aux": pushed})
    daemon.answers |= {"POST /images/.*/push": said}
    found = push(connect(), IMAGE, Watcher())
    assert str(found) == f"{IMAGE}@{digest(b'pushed')}"


def test_a_push_without_a_login_says_where_to_log_in(daemon: FakeDaemon) -> None:
    refused = {"error": "unauthorized: access to the requested resource is not authorized"}
    daemon.answers |= {"POST /images/.*/push": told(refused)}
    with pytest.raises(ImageError, match="the registry refuses access") as caught:
        push(connect(), IMAGE, Watcher())
    assert caught.value.hint.startswith("docker login")


def test_a_build_shows_its_steps_and_the_last_lines_of_one_that_fails() -> None:
    watcher = Watcher()
    said = [
        {"stream": "Step 1/3 : ARG TORCH=2.13.0"},
        {"stream": "Step 2/3 : RUN  make   all"},
        {"stream": "\x1b[91mno rule to make all\n\x1b[0m"},
        {"stream": "Removing intermediate container 0a1b\n"},
        {"error": "The command '/bin/sh -c make not found' returned a non-zero code: 2"},
    ]
    with pytest.raises(ImageError) as caught:
        follow(said, watcher, name="build", doing="cannot build cpu")
    assert watcher.steps == [("build", "2/3 RUN make all")]
    assert str(caught.value) == (
        "cannot build cpu: a command of the Dockerfile failed: non-zero code: 2\n  no rule to make all"
    )


def test_a_build_on_a_full_disk_says_so() -> None:
    said = "The command '/bin/sh -c x' returned a non-zero code: 1"
    error = image_error("cannot build cpu", said, ["cp: write error: No space left on device"])
    assert "no space is left" in str(error)
