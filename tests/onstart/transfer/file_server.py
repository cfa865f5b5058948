"""A web server of one file that behaves as a test wants it to."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests import http_servers


@dataclass
class FileServer:
    """What it does, and what was asked of it."""

    content: bytes = b""
    url: str = ""
    cut_after: list[int] = field(default_factory=list)
    """Bytes after which the connection of each request is cut, one after the other; then none is."""
    statuses: list[int] = field(default_factory=list)
    """Status of each request, one after the other; then 200 or 206."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of every response."""
    resumes: bool = True
    """False: a range is not heeded."""
    endless: bool = False
    """No length is told, and the file has no end."""
    etag: Callable[[int], str] = lambda _request: '"1"'
    """Of each request, by its number."""
    ranges: list[str] = field(default_factory=list)
    """Asked for, one for each request; empty: all of it."""
    paths: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)


@contextmanager
def serving(content: bytes = b"") -> Iterator[FileServer]:
    """Serve until the end of the context."""
    state = FileServer(content=content)

    class Handler(http_servers.QuietHandler):
        def do_GET(self) -> None:
            with suppress(ConnectionError):  # it left before the end
                _respond(self, state)

    with http_servers.serving(Handler) as url:
        state.url = f"{url}/file.bin"
        yield state


def _respond(request: BaseHTTPRequestHandler, state: FileServer) -> None:
    state.paths.append(request.path)
    state.tokens.append(request.headers.get("Authorization", ""))
    state.ranges.append(request.headers.get("Range", ""))
    status = state.statuses.pop(0) if state.statuses else 200
    start = _start(request.headers, state)
    if status != 200:
        _head(request, status, {**state.headers, "Content-Length": "0"})
        return
    if state.endless:
        _head(request, 200, state.headers)
        while True:
            try:
                request.wfile.write(b"x" * 65536)
            except OSError:
                return
    total = len(state.content)
    headers = {"Content-Length": str(total - start), "ETag": state.etag(len(state.ranges)), **state.headers}
    if start:
        headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
    _head(request, 206 if start else 200, headers)
    end = start + state.cut_after.pop(0) if state.cut_after else total
    request.wfile.write(state.content[start:end])
    request.close_connection = True


def _start(asked: Mapping[str, str], state: FileServer) -> int:
    found = re.fullmatch(r"bytes=(\d+)-", asked.get("Range", "") or "")
    condition = asked.get("If-Range", "")
    is_same = not condition or condition == state.etag(len(state.ranges))
    return int(found[1]) if found and state.resumes and is_same else 0


def _head(request: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str]) -> None:
    request.send_response(status)
    for name, value in headers.items():
        request.send_header(name, value)
    request.end_headers()
