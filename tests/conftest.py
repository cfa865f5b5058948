"""Tests at once; what a computer cannot run: skipped with a line, in CI nothing is. A bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

SSHD = Path("/usr/sbin/sshd")
EMULATED = ("tests/emulators/", "tests/launcher/vast/", "tests/launcher/ssh/", "tests/e2e/test_vast_")
EMULATED_TOO = ("tests/e2e/test_secrets.py", "tests/e2e/test_continuing.py", "[vast", "[ssh")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: many tests wait, for a box, a server or a rank."""
    return 2 + (os.cpu_count() or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Emulated machines are reached as root, through a real sshd."""
    if os.environ.get("CI") or (os.geteuid() == 0 and SSHD.exists()):
        return
    skip = pytest.mark.skip(reason=f"emulated machines need root and {SSHD} (package openssh-server)")
    for item in items:
        if item.nodeid.startswith(EMULATED) or any(part in item.nodeid for part in EMULATED_TOO):
            item.add_marker(skip)


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
