"""Tests at once; what a computer cannot run: skipped with a line, in CI nothing is. A bucket."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

SSHD = Path("/usr/sbin/sshd")
EMULATED = ("tests/emulators/", "tests/launcher/vast/", "tests/launcher/ssh/", "tests/e2e/test_vast_")
EMULATED_TOO = ("tests/e2e/test_secrets.py", "tests/e2e/test_continuing.py", "[vast", "[ssh")
BASE_IMAGE = "127.0.0.1:5000/vastrun-base:bookworm"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: many tests wait, for a box, a server or a rank."""
    return 2 + (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Emulated machines are reached as root, through a real sshd; containers need a daemon and an image."""
    if os.environ.get("CI"):
        return
    in_docker = [item for item in items if item.get_closest_marker("docker")]
    if in_docker and not _docker_is_ready():
        _skip(
            in_docker, "no Docker with the base image: tests/docker/daemon.sh start && tests/docker/base.sh"
        )
    if os.geteuid() != 0 or not SSHD.exists():
        _skip(filter(_is_emulated, items), f"emulated machines need root and {SSHD} (package openssh-server)")


def _skip(items: Iterable[pytest.Item], reason: str) -> None:
    for item in items:
        item.add_marker(pytest.mark.skip(reason=reason))


def _is_emulated(item: pytest.Item) -> bool:
    return item.nodeid.startswith(EMULATED) or any(part in item.nodeid for part in EMULATED_TOO)


def _docker_is_ready() -> bool:
    if find_spec("docker") is None:
        return False
    import docker

    try:
        docker.from_env(timeout=5).images.get(BASE_IMAGE)
    except docker.errors.DockerException:
        return False
    return True


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An S3 server with one bucket, and a client of it."""
    pytest.importorskip("s3fs")
    server_module = pytest.importorskip("moto.server")
    import boto3

    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    # What it keeps outlives the server, for as long as the process.
    urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")).close()
    client = boto3.client("s3", region_name="us-east-1")
    client.create_bucket(Bucket="models")
    yield client
    server.stop()
