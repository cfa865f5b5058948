"""HTTP requests end in time, and after some lines, whatever a server sends."""

import time
from http.client import HTTPException

import pytest

from tests.hostile.test_data_server import answering, drip, send_trailers
from vastrun.contract.limited_http import limited_opener
from vastrun.launcher.core.errors import ImageError
from vastrun.launcher.core.image_ref import ImageReference
from vastrun.launcher.gate.caps import Allowance, ExchangeBudget
from vastrun.launcher.image.registry import Registry
from vastrun.launcher.providers.vast.calls import VastCall
from vastrun.launcher.providers.vast.errors import NoResponseError
from vastrun.launcher.providers.vast.transport import VastAccount, http_sender

HEAD = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "status": b"HTTP/1.1 ",
    "header": HEAD + b"X: ",
    "interim response": b"HTTP/1.1 100 Continue\r\nX: ",
    "content": HEAD + b"Content-Length: 1000000\r\n\r\n",
    "content without length": HEAD + b"\r\n",
    "size of a chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    "trailer": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    "redirect": b"HTTP/1.1 302 Found\r\nLocation: /next",
}


@pytest.mark.parametrize("start", DRIPS.values(), ids=DRIPS)
def test_a_response_that_drips_ends_in_time(start: bytes) -> None:
    with (
        answering(start, then=drip) as url,
        pytest.raises(TimeoutError),
        limited_opener(0.2) as opener,
        opener.open(url, timeout=30) as response,
    ):
        response.read()


@pytest.mark.parametrize("start", [b"HTTP/1.1 100 Continue\r\n\r\n" * 9, DRIPS["trailer"] + b"y\r\n"])
def test_lines_without_end_are_refused(start: bytes) -> None:
    with (
        answering(start, then=send_trailers) as url,
        pytest.raises(HTTPException),
        limited_opener(30) as opener,
        opener.open(url, timeout=30) as response,
    ):
        response.read()


def test_a_response_in_many_chunks_arrives_whole() -> None:
    chunks = b"1\r\nx\r\n" * 5000 + b"0\r\n" + b"X: y\r\n" * 100 + b"\r\n"
    with (
        answering(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunks) as url,
        limited_opener(30) as opener,
        opener.open(url, timeout=30) as response,
    ):
        assert response.read() == b"x" * 5000


def test_vast_that_drips_ends_within_the_budget_of_the_exchange() -> None:
    budget = ExchangeBudget(Allowance(seconds=0.2, memory=1000), now=time.monotonic)
    with answering(DRIPS["header"], then=drip) as url, pytest.raises(NoResponseError):
        http_sender(VastAccount(key="key", server=url))(
            VastCall(route="search", method="GET", path="/"), budget
        )


@pytest.mark.parametrize("challenge", [b"Bearer " + b"x" * 60_000, b"Bearer " + b'a="' * 20_000])
def test_a_long_challenge_of_a_registry_costs_little_time(challenge: bytes) -> None:
    answer = b"HTTP/1.1 401 No\r\nWWW-Authenticate: " + challenge + b"\r\nContent-Length: 0\r\n\r\n"
    began = time.process_time()
    with answering(answer) as url, pytest.raises(ImageError, match="refused"):
        host = url.removeprefix("http://").partition("/")[0]
        Registry(lambda _registry: None).look_up(ImageReference.of(f"{host}/name:tag"))
    assert time.process_time() - began < 1.0
