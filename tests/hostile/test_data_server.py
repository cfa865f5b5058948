"""A data server that answers nonsense is to blame itself, prints nothing that steers, and leaves no file."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from tests.hostile.lie import STEERING
from vastrun.contract.data_files import JobDataFile
from vastrun.onstart.transfer.download import FileDownload
from vastrun.onstart.transfer.sources import DataFileError, HttpSource

_HEAD = b"HTTP/1.1 200 OK\r\n"
_STEERING = STEERING.encode().replace(b"\r", b"").replace(b"\n", b"")

ANSWERS = {
    "nothing": b"",
    "no HTTP": b"\x00\xff garbage\r\n\r\n",
    "a status that steers": b"HTTP/1.1 500 " + _STEERING + b"\r\n\r\n",
    "a status of many digits": b"HTTP/1.1 " + b"9" * 5000 + b" OK\r\n\r\n",
    "headers without end": _HEAD + b"X: y\r\n" * 5000,
    "a header without end": _HEAD + b"X: " + b"y" * 200_000,
    "a negative length": _HEAD + b"Content-Length: -5\r\n\r\nabc",
    "a length in words": _HEAD + b"Content-Length: many\r\n\r\nabc",
    "chunks of no size": _HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\nabc",
    "a part that nobody asked for": b"HTTP/1.1 206 Partial\r\nContent-Range: bytes 7-9/10\r\n\r\nabc",
    "a range that is none": b"HTTP/1.1 206 Partial\r\nContent-Range: " + _STEERING + b"\r\n\r\nabc",
    "a redirect to nowhere": b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\n\r\n",
    "a redirect that steers": b"HTTP/1.1 302 Found\r\nLocation: x" + _STEERING + b"://x/\r\n\r\n",
}


def _send_again(connection: socket.socket, answer: bytes) -> None:
    while True:
        connection.sendall(answer)


def _wait_for_the_client(connection: socket.socket, _answer: bytes) -> None:
    while connection.recv(65536):
        pass


def _close(_connection: socket.socket, _answer: bytes) -> None:
    """The server closes every connection."""


@contextmanager
def answering(answer: bytes, *, then: Callable[[socket.socket, bytes], None] = _close) -> Iterator[str]:
    """Give every request this answer, do what follows it, and close; yield the URL of the server."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection, suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(answer)
                    then(connection, answer)

        thread = Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/file.bin"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def failure_of(source: HttpSource, folder: Path) -> DataFileError:
    """Return the error that a download of ten bytes ends with."""
    file = JobDataFile(
        url="http://127.0.0.1/file.bin", path="file.bin", size=10, max_bytes=10, sha256="0" * 64
    )
    with pytest.raises(DataFileError) as raised:
        FileDownload(file, source, folder / "part", sleep=lambda _seconds: None).run()
    return raised.value


@pytest.mark.parametrize("name", ANSWERS)
def test_a_server_that_answers_nonsense_is_given_up(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(ANSWERS[name]) as url:
        failure = failure_of(HttpSource(url), tmp_path)
    assert failure.blame == "server"
    said = f"{failure}\n{capsys.readouterr().out}"
    assert all(line.isprintable() and len(line) < 400 for line in said.splitlines())


def test_interim_responses_without_end_are_given_up(tmp_path: Path) -> None:
    with answering(b"HTTP/1.1 100 Continue\r\n\r\n", then=_send_again) as url:
        failure = failure_of(HttpSource(url), tmp_path)
    assert failure.blame == "server"
    assert "TooManyHeaderLines" in str(failure)


def test_headers_that_stop_arriving_are_given_up(tmp_path: Path) -> None:
    with answering(_HEAD + b"X: ", then=_wait_for_the_client) as url:
        failure = failure_of(HttpSource(url, head_timeout_s=0.2), tmp_path)
    assert failure.blame == "server"
    assert "6 times in a row" in str(failure)


_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("start", [_CHUNKED + b"5\r\nhello\r\n0\r\n", _CHUNKED + b"0\r\n"])
def test_trailers_without_end_are_given_up(start: bytes, tmp_path: Path) -> None:
    with answering(start, then=send_trailers) as url:
        failure = failure_of(HttpSource(url), tmp_path)
    assert failure.blame == "server"
    assert "TooManyHeaderLines" in str(failure)


@pytest.mark.parametrize(
    "start", [_CHUNKED + b"5\r\nhello\r\n0\r\nX: ", _CHUNKED, _HEAD], ids=["trailer", "size", "header"]
)
def test_a_line_that_drips_is_given_up(start: bytes, tmp_path: Path) -> None:
    with answering(start, then=drip) as url:
        failure = failure_of(HttpSource(url, head_timeout_s=0.2), tmp_path)
    assert failure.blame == "server"


def send_trailers(connection: socket.socket, _answer: bytes) -> None:
    """Lines without end follow."""
    _send_again(connection, b"X: y\r\n" * 100)


def drip(connection: socket.socket, _answer: bytes) -> None:
    """The same byte follows, many times a second, until the client leaves."""
    connection.settimeout(0.02)
    while True:
        with suppress(TimeoutError):
            if not connection.recv(1):
                return
        connection.sendall(b"1")
