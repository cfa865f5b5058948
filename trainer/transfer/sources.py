"""Sources of downloads: a web server, read from any offset without leaving its scheme, and object storage.

Standard library only.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import urljoin, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from vastrun.trainer.transfer.download_error import DataFileError, InterruptedDownload, network_error
from vastrun.trainer.transfer.remote_checkpoints import in_one_line, transfer_errors

_TIMEOUT_S = 60.0
"""Maximum seconds without a byte."""
_HEAD_TIMEOUT_S = 300.0
"""Maximum seconds until the headers are there, with all redirects: they may arrive byte by byte."""
_MAX_HEAD_LINES = 1000
"""Maximum lines before the content, interim responses included: these may have no end."""
_MAX_REDIRECTS = 5
_MAX_WAIT_S = 120.0
"""Maximum seconds to wait on a server's request (Retry-After)."""
_TRANSIENT = {408, 425, 429}
_AUTHORIZATION = "Authorization"
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True)
class OpenFile:
    """A file that is being read."""

    read: Callable[[int], bytes]
    """Return what has arrived, at most that many bytes; b"" at the end."""
    offset: int
    """Offset of the first byte that it returns."""
    total: int | None
    """Size in bytes of the whole file; None: the server does not say."""
    version: str = ""
    """Text that changes with the content; empty: unknown."""


class HttpSource:
    """A file at an http or https address. `token`: sent to this server only."""

    def __init__(
        self,
        address: str,
        *,
        token: str = "",
        advice: str = "",
        timeout_s: float = _TIMEOUT_S,
        head_timeout_s: float = _HEAD_TIMEOUT_S,
    ) -> None:
        """`advice`: what to do when the server refuses access."""
        self._address, self._token, self._advice = address, token, advice
        self._timeout_s, self._head_timeout_s = timeout_s, head_timeout_s
        self.server = urlsplit(address).hostname or ""

    @contextmanager
    def open(self, offset: int, version: str) -> Iterator[OpenFile]:
        """Open the file at an offset; at 0 when the server cannot continue, or has another version.

        Raises DataFileError and InterruptedDownload, also for errors while it is read.
        """
        try:
            with self._request(offset, version) as response:
                yield self._opened(response, offset)
        except HTTPError as error:
            error.close()
            raise self._status_error(error.code, error.headers, offset) from error
        except (OSError, HTTPException, ValueError) as error:
            raise network_error(error, self.server) from error

    def _request(self, offset: int, version: str) -> Any:
        request = Request(self._address)
        request.add_header("User-Agent", "vastrun")
        request.add_header("Accept-Encoding", "identity")
        if offset:
            request.add_header("Range", f"bytes={offset}-")
            # A weak validator must not be used here: RFC 9110, section 13.1.5.
            if version and not version.startswith("W/"):
                request.add_header("If-Range", version)
        if self._token:
            request.add_unredirected_header(_AUTHORIZATION, f"Bearer {self._token}")
        connections = _Connections()
        with connections.closed_after(self._head_timeout_s):
            return _opener(connections).open(request, timeout=self._timeout_s)

    def _opened(self, response: Any, offset: int) -> OpenFile:
        headers: HTTPMessage = response.headers
        version = headers.get("ETag", "")
        if response.status == 206:
            found = _CONTENT_RANGE.fullmatch(headers.get("Content-Range", "").strip())
            if found is None or int(found[1]) != offset:
                raise DataFileError("server", f"{self.server} sent another part than the one requested")
            total = None if found[3] == "*" else int(found[3])
            return OpenFile(read=response.read1, offset=offset, total=total, version=version)
        if response.status != 200:
            raise DataFileError("server", f"{self.server} responds with HTTP {response.status}")
        length = headers.get("Content-Length", "")
        total = int(length) if re.fullmatch(r"[0-9]{1,18}", length) else None
        return OpenFile(read=response.read1, offset=0, total=total, version=version)

    def _status_error(self, code: int, headers: Message, offset: int) -> DataFileError | InterruptedDownload:
        where = self.server
        if code == 416 and offset:
            return InterruptedDownload("server", f"{where} has another version of the file", wait_s=0.0)
        if code in _TRANSIENT or code >= 500:
            wait = headers.get("Retry-After", "")
            wait_s = min(float(wait), _MAX_WAIT_S) if re.fullmatch(r"[0-9]{1,9}", wait) else None
            return InterruptedDownload("server", f"{where} responds with HTTP {code}", wait_s)
        if 300 <= code < 400:
            return DataFileError(
                "server", f"{where} redirects to an address that is not followed (HTTP {code})"
            )
        if code in (401, 403):
            return DataFileError("job", f"{where} refuses access (HTTP {code}){self._advice}")
        if code in (404, 410):
            return DataFileError("job", f"{where} has no such file (HTTP {code})")
        return DataFileError("job", f"{where} rejects the request (HTTP {code})")


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirects to https, and from http to http. A token stays with its own server."""

    max_redirections = _MAX_REDIRECTS

    def redirect_request(  # the parameters are those of its base class
        self,
        req: Request,
        fp: IO[bytes],  # noqa: ARG002
        code: int,  # noqa: ARG002
        msg: str,  # noqa: ARG002
        headers: HTTPMessage,  # noqa: ARG002
        newurl: str,
    ) -> Request:
        before, after = urlsplit(req.full_url), urlsplit(urljoin(req.full_url, newurl))
        if after.scheme != "https" and after.scheme != before.scheme:
            raise DataFileError(
                "server",
                f"{before.hostname} redirects from {before.scheme} to {after.scheme}, which is not followed",
            )
        following = Request(after.geturl().replace(" ", "%20"), headers=dict(req.headers))
        if (after.scheme, after.netloc) == (before.scheme, before.netloc):
            for name, value in req.unredirected_hdrs.items():
                if name == _AUTHORIZATION:
                    following.add_unredirected_header(name, value)
        return following

    http_error_308 = HTTPRedirectHandler.http_error_302  # since Python 3.11
    """Follow a permanent redirect."""


class _Connections:
    """The connections of a request, which a timer closes."""

    def __init__(self) -> None:
        self._opened: list[HTTPConnection] = []

    def open_http(self, host: str, **options: Any) -> HTTPConnection:
        """Make a connection to a host."""
        return self._add(HTTPConnection(host, **options))

    def open_https(self, host: str, **options: Any) -> HTTPConnection:
        """Make an encrypted connection to a host, whose certificate is verified."""
        return self._add(HTTPSConnection(host, **options))

    def _add(self, connection: HTTPConnection) -> HTTPConnection:
        connection.response_class = _Response
        self._opened.append(connection)
        return connection

    @contextmanager
    def closed_after(self, seconds: float) -> Iterator[None]:
        """Close all of them unless the block ends in time: then reading from them fails."""
        timer = Timer(seconds, self._close)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _close(self) -> None:
        for connection in self._opened:
            if connection.sock is not None:
                with suppress(OSError):
                    connection.sock.shutdown(socket.SHUT_RDWR)


class _Response(HTTPResponse):
    """A response with a limited number of lines before its content.

    Closing the connection does not end a read while the server sends faster than is read.
    """

    def begin(self) -> None:
        whole: Any = self.fp
        head: Any = _HeadLines(whole)
        self.fp = head
        try:
            super().begin()
        finally:
            if self.fp is head:
                self.fp = whole


class TooManyHeaderLines(HTTPException):
    """A response has more lines before its content than are read."""


class _HeadLines:
    """The lines before the content of a response."""

    def __init__(self, whole: IO[bytes]) -> None:
        self._whole, self._left = whole, _MAX_HEAD_LINES

    def readline(self, limit: int) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise TooManyHeaderLines
        return self._whole.readline(limit)

    def close(self) -> None:
        self._whole.close()


class _Http(HTTPHandler):
    """Opens http addresses."""

    def __init__(self, connections: _Connections) -> None:
        super().__init__()
        self._connections = connections

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connections.open_http, req)


class _Https(HTTPSHandler):
    """Opens https addresses."""

    def __init__(self, connections: _Connections) -> None:
        super().__init__()
        self._connections = connections

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(self._connections.open_https, req)


def _opener(connections: _Connections) -> OpenerDirector:
    """Return an opener without handlers for files, FTP and data: URLs."""
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        _Http(connections),
        _Https(connections),
        _SafeRedirects(),
        HTTPErrorProcessor(),
        HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


class ObjectSource:
    """A file in a bucket, with the credentials of the environment."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.server = url.partition("://")[2].partition("/")[0]
        """Name of the bucket."""

    @contextmanager
    def open(self, offset: int, version: str) -> Iterator[OpenFile]:
        """Open the file at an offset; at 0 when it has another version than before.

        Raises DataFileError and InterruptedDownload, also for errors while it is read.
        """
        try:
            # Imported here: a job without such a URL does not need fsspec.
            from fsspec.core import url_to_fs

            files, path = url_to_fs(self._url, use_listings_cache=False, skip_instance_cache=True)
            about = files.info(path)
            now = str(about.get("ETag", ""))
            start = offset if now == version and offset <= about["size"] else 0
            # A plain reading ahead: the file is read once, from the front.
            with files.open(path, "rb", block_size=_BLOCK_BYTES, cache_type="readahead") as stream:
                stream.seek(start)
                yield OpenFile(read=stream.read, offset=start, total=about["size"], version=now)
        except transfer_errors() as error:
            raise self._mapped(error) from error

    def _mapped(self, error: BaseException) -> DataFileError | InterruptedDownload:
        text = in_one_line(error)
        if isinstance(error, ImportError):
            return DataFileError("job", f"{self._url.partition('://')[0]}:// needs a package: {text}")
        if isinstance(error, FileNotFoundError):
            return DataFileError("job", f"the bucket {self.server} has no such file")
        # botocore's class is not imported for its name: without credentials it may be any version.
        if isinstance(error, PermissionError) or "Credentials" in type(error).__name__:
            return DataFileError(
                "job",
                f"the bucket {self.server} refuses access: {text} "
                "(secrets: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY] in the job file)",
            )
        return InterruptedDownload("server", f"the bucket {self.server} cannot be read: {text}")
