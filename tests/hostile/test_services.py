"""A service that answers without end: refused within its budget, as no answer, and never as an empty one."""

from __future__ import annotations

import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import FakeClock
from tests.http_servers import QuietHandler, serving
from tests.launcher.image.fake_registry import Watcher
from vastrun.launcher.core import Cause
from vastrun.launcher.core.errors import ImageError, UncertainError, UnreachableError
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate import caps
from vastrun.launcher.image.daemon import follow
from vastrun.launcher.providers.slurm.login_node import LoginNode
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.limits import FileRateLimitStore, Limiter
from vastrun.launcher.providers.vast.transport import Send, VastAccount, http_sender, sdk_sender

_MB = 1 << 20


class FloodingVast(QuietHandler):
    """Answers every request in one way."""

    flood: Callable[[FloodingVast], None]

    def do_GET(self) -> None:
        self.send_response(200)
        type(self).flood(self)

    do_PUT = do_POST = do_GET

    def send(self, *chunks: bytes, encoding: str = "identity") -> None:
        self.send_header("Content-Encoding", encoding)
        self.end_headers()
        for chunk in chunks:
            try:
                self.wfile.write(chunk)
            except OSError:
                return


def _bomb(request: FloodingVast) -> None:
    packer = zlib.compressobj(wbits=31)
    # From the second on each part is the same: to pack it again would take seconds.
    first, more = (packer.compress(b" " * _MB) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    request.send(first, *[more] * 255, encoding="gzip")


def _pages(request: FloodingVast) -> None:
    row = {"id": 7, "note": "x" * 200}
    token = str(hash(request.path))  # another one for each page
    page = {"success": True, "instances": [row] * 2000, "next_token": token, "instances_found": 10**9}
    request.send(json.dumps(page).encode())


FLOODS: dict[str, Callable[[FloodingVast], None]] = {
    "a large answer": lambda request: request.send(b'{"instances": [', *[b"0," * (_MB // 2)] * 64),
    "a small one that unpacks to a large one": _bomb,
    "lists without an end": lambda request: request.send(b"[" + b"[]," * (2 * _MB) + b"0]"),
    "pages without an end": _pages,
}


@pytest.fixture(params=[http_sender, sdk_sender])
def connect(request: pytest.FixtureRequest) -> Callable[[VastAccount], Send]:
    sender: Callable[[VastAccount], Send] = request.param
    return sender


@pytest.fixture
def api(
    request: pytest.FixtureRequest, tmp_path: Path, connect: Callable[[VastAccount], Send]
) -> Iterator[VastApi]:
    handler: Any = type("Handler", (FloodingVast,), {"flood": staticmethod(FLOODS[request.param])})
    clock = FakeClock()
    limiter = Limiter(FileRateLimitStore(tmp_path / "calls.json", clock.now), clock.sleep)
    with serving(handler) as url:
        yield VastApi(VastAccount(key="key", server=url), limiter, clock, connect)


def test_a_login_node_that_prints_without_end_is_no_answer(tmp_path: Path) -> None:
    node = LoginNode(SlurmSettings(), tmp_path, os.environ)
    most = int(caps.EXCHANGES["slurm"].items)
    assert node.query(f"seq {most}").endswith(f"\n{most}\n")
    with pytest.raises(UnreachableError, match=f"this computer sent more than {most} lines") as caught:
        node.query(f"seq {most + 1}")
    assert caught.value.cause is Cause.PROVIDER


def test_a_docker_daemon_that_tells_without_end_is_refused() -> None:
    told = itertools.repeat({"aux": {"ID": "x" * 1000}})
    with pytest.raises(ImageError, match="Docker sent more than"):
        follow(told, Watcher(), name="pull", doing="cannot pull")


@pytest.mark.parametrize("api", FLOODS, indirect=True)
def test_a_list_that_has_no_end_is_no_answer(api: VastApi) -> None:
    with pytest.raises(UnreachableError, match=r"it sent more than|not JSON") as caught:
        api.instances()
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("api", ["a large answer"], indirect=True)
def test_an_order_whose_answer_has_no_end_may_have_made_a_machine(api: VastApi) -> None:
    with pytest.raises(UncertainError, match=f"it sent more than {caps.EXCHANGES['vast'].memory:.0f} bytes"):
        api.create("7", {"image": "debian:12", "disk": 8.0})
