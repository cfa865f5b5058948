"""The log of a machine's host: fetched within seconds and bounds, read by the same table as a status."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.emulators.vast import VastEmulator
from tests.launcher.providers.vast.rentals import eventually_refused, rent
from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import UnexplainedError, UnreachableError
from vastrun.launcher.providers.vast import VastProvider, boot
from vastrun.launcher.providers.vast.host_log import fetch_log

SLACK_S = 5.0
"""For a busy computer."""


@contextmanager
def published(status: int, content: bytes) -> Iterator[str]:
    """An address at which that lies."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Nothing is printed."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/log"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("daemon_log_image", Cause.USER_ERROR), ("daemon_log_host", Cause.HOST), ("daemon_log_noise", None)],
)
def test_the_log_tells_why_a_machine_does_not_start(
    vast: VastEmulator, provider: VastProvider, fault: str, cause: Cause | None
) -> None:
    vast.faults.add(fault)
    machine = rent(provider)
    assert isinstance(eventually_refused(provider, machine), UnexplainedError)
    log = provider.host_log(machine.id, within_s=30.0)
    assert provider.cause_in(log) is cause
    assert len(log) <= 1 << 18


def test_a_log_that_is_never_ready_is_not_waited_for(vast: VastEmulator, provider: VastProvider) -> None:
    vast.faults.add("daemon_log_late")
    machine = rent(provider)
    eventually_refused(provider, machine)
    began = time.monotonic()
    with pytest.raises(UnreachableError, match="within 1 s"):
        provider.host_log(machine.id, within_s=1.0)
    assert time.monotonic() - began < 1.0 + SLACK_S


def test_an_api_that_hangs_is_not_waited_for() -> None:
    hangs = threading.Event()

    def request() -> dict[str, Any]:
        hangs.wait()
        return {}

    began = time.monotonic()
    with pytest.raises(UnreachableError, match="no log"):
        fetch_log(request, 0.2)
    assert time.monotonic() - began < SLACK_S
    hangs.set()


@pytest.mark.parametrize(
    "answer",
    [{}, {"result_url": None}, {"result_url": 7}, {"result_url": "file:///etc/passwd"}, {"result_url": []}],
)
def test_an_answer_without_an_address_on_the_web_is_no_log(answer: dict[str, Any]) -> None:
    with pytest.raises(UnreachableError, match="without its address"):
        fetch_log(lambda: answer, 10.0)


def test_no_more_is_read_of_a_log_than_is_of_use() -> None:
    with published(200, b"\xff" + b"x" * 3_000_000) as url:
        text = fetch_log(lambda: {"result_url": url}, 30.0)
    assert len(text) == 1 << 18


def test_a_refusal_of_the_request_is_told() -> None:
    def refused() -> dict[str, Any]:
        raise UnreachableError("Vast is down")

    with pytest.raises(UnreachableError, match="Vast is down"):
        fetch_log(refused, 10.0)


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("", None),
        ("pulling\nstarting\n", None),
        ("docker: Error response from daemon: manifest unknown.\n", Cause.USER_ERROR),
        ("toomanyrequests: You have reached your pull rate limit.\n", Cause.PROVIDER),
        ("nvidia-container-cli: initialization error: NVML: driver/library version mismatch\n", Cause.HOST),
        ("Error response from daemon: x\nmanifest for a/b:c not found\n", Cause.USER_ERROR),
    ],
)
def test_a_log_is_read_by_the_table_of_a_status(log: str, cause: Cause | None) -> None:
    assert boot.cause_in(log) is cause
