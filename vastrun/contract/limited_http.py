"""Limited HTTP: requests that end after a time and a number of lines, whatever a server sends.

with limited_opener(30.0) as opener, opener.open(url, timeout=10.0) as response:
    content = response.read(1 << 20)
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Event, Thread
from typing import IO, Any
from urllib.request import (
    BaseHandler,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    Request,
    build_opener,
)

_MAX_LINES = 1000
"""Maximum lines without content between them: interim responses, headers and trailers may have no end."""
_CLOSE_INTERVAL_S = 1.0
"""Seconds after which late connections are closed again: one may just have been opened."""


class TooManyHeaderLines(HTTPException):
    """A response has more lines around its content than are read."""


@contextmanager
def limited_opener(seconds: float, *handlers: BaseHandler | type[BaseHandler]) -> Iterator[OpenerDirector]:
    """Yield an opener whose connections are closed after `seconds`, counted from here.

    Raises TimeoutError then.
    """
    connections = Connections()
    with connections.closed_after(seconds):
        yield build_opener(connections.handler, *handlers)


class Connections:
    """The connections of a request, which a thread closes when they are late."""

    def __init__(self) -> None:
        self._opened: list[HTTPConnection] = []
        self.sockets: list[socket.socket] = []
        """Sockets of responses, which their connections give up after the headers."""
        self._is_late = Event()
        self.content_at = 0.0
        """Monotonic time at which content was last read."""
        self.handler = _LimitedHandler(self)

    @contextmanager
    def closed_after(self, seconds: float, *, renews: bool = False) -> Iterator[None]:
        """Close all of them unless the block ends in time, and raise TimeoutError.

        `renews`: the time counts from the last content instead of from here.
        """
        is_over, is_late, began_at = Event(), self._is_late, time.monotonic()

        def close() -> None:
            left_s = seconds
            while not is_over.wait(max(_CLOSE_INTERVAL_S, left_s) if is_late.is_set() else left_s):
                counts_from = max(began_at, self.content_at) if renews else began_at
                left_s = max(0.0, counts_from + seconds - time.monotonic())
                if left_s == 0:
                    is_late.set()
                    for connected in (*(connection.sock for connection in self._opened), *self.sockets):
                        if connected is not None:
                            with suppress(OSError):
                                connected.shutdown(socket.SHUT_RDWR)

        Thread(target=close, name="http limit", daemon=True).start()
        try:
            yield
        finally:
            is_over.set()
            if is_late.is_set():
                raise TimeoutError(f"timed out: no complete response within {seconds:g} s")

    def open(self, kind: type[HTTPConnection], host: str, **options: Any) -> HTTPConnection:
        """Make a connection to a host, whose certificate is verified if it is encrypted."""
        connection = kind(host, **options)
        if self._is_late.is_set():  # a redirect that was cut short is followed
            raise TimeoutError("timed out")
        response_class: Any = partial(_Response, connections=self)
        connection.response_class = response_class
        self._opened.append(connection)
        return connection


class _Response(HTTPResponse):
    """A response with a limited number of lines around its content.

    Closing the connection does not end a read while the server sends faster than is read.
    """

    def __init__(
        self, sock: socket.socket, *arguments: Any, connections: Connections, **options: Any
    ) -> None:
        super().__init__(sock, *arguments, **options)
        connections.sockets.append(sock)
        lines: Any = _Lines(self.fp, connections)
        self.fp = lines


class _Lines:
    """The bytes of a response; its lines are counted until something else is read."""

    def __init__(self, whole: IO[bytes], connections: Connections) -> None:
        self._whole, self._left, self._connections = whole, _MAX_LINES, connections

    def readline(self, limit: int) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise TooManyHeaderLines
        return self._whole.readline(limit)

    def close(self) -> None:
        self._whole.close()

    def __getattr__(self, name: str) -> Any:
        self._left = _MAX_LINES
        self._connections.content_at = time.monotonic()
        return getattr(self._whole, name)


class _LimitedHandler(HTTPSHandler, HTTPHandler):
    """Opens http addresses, and https addresses, whose certificates are verified."""

    def __init__(self, connections: Connections) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(self._connections.open, HTTPConnection), req)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(self._connections.open, HTTPSConnection), req)


class NoRedirects(HTTPRedirectHandler):
    """Follows no redirect: it would take a key elsewhere, or turn a POST into a GET."""

    def redirect_request(self, *_: object) -> None:
        return None
