"""Sources of downloads: a web server, read from any offset without leaving its scheme, and object storage.

Their errors are final ones, with who is to blame, or those after which the download is continued. Standard
library only.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPMessage
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urljoin, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPRedirectHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

from vastrun.contract.data_files import Blame
from vastrun.contract.limited_http import Connections
from vastrun.onstart.transfer.remote_checkpoints import in_one_line, transfer_errors

_TIMEOUT_S = 60.0
"""Maximum seconds without a byte."""
_HEAD_TIMEOUT_S = 300.0
"""Maximum seconds without content, with all redirects: headers and trailers may arrive byte by byte."""
_MAX_WAIT_S = 120.0
"""Maximum seconds to wait on a server's request (Retry-After)."""
_TRANSIENT = {408, 425, 429}
_REFUSALS = {401: "refuses access", 403: "refuses access", 404: "has no such file", 410: "has no such file"}
_AUTHORIZATION = "Authorization"
_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_NO_NETWORK = {errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class DataFileError(Exception):
    """A file cannot be downloaded. `blame` says whose fault it is."""

    def __init__(self, blame: Blame, text: str) -> None:
        super().__init__(" ".join(text.split()))
        self.blame = blame


class InterruptedDownload(DataFileError):
    """A download ended early and may be continued after `wait_s` seconds; None: after the usual pause.

    `blame`: of the DataFileError when it cannot be continued.
    """

    def __init__(self, blame: Blame, text: str, wait_s: float | None = None) -> None:
        super().__init__(blame, text)
        self.wait_s = wait_s


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
            connections, request = Connections(), self._request(offset, version)
            limit = connections.closed_after(self._head_timeout_s, renews=True)
            with limit, _opener(connections).open(request, timeout=self._timeout_s) as response:
                yield self._opened(response, offset)
        except HTTPError as error:
            error.close()
            raise self._status_error(error.code, error.headers, offset) from error
        except (OSError, HTTPException, ValueError) as error:
            raise network_error(error, self.server) from error

    def _request(self, offset: int, version: str) -> Request:
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
        return request

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

    def _status_error(self, code: int, headers: Message, offset: int) -> DataFileError:
        where = self.server
        if code == 416 and offset:
            return InterruptedDownload("server", f"{where} has another version of the file", wait_s=0.0)
        if code in _TRANSIENT or code >= 500:
            wait = headers.get("Retry-After", "")
            wait_s = min(float(wait), _MAX_WAIT_S) if re.fullmatch(r"[0-9]{1,9}", wait) else None
            return InterruptedDownload("server", f"{where} responds with HTTP {code}", wait_s)
        if 300 <= code < 400:
            text = f"{where} redirects to an address that is not followed (HTTP {code})"
            return DataFileError("server", text)
        advice = self._advice if code in (401, 403) else ""
        how = _REFUSALS.get(code, "rejects the request")
        return DataFileError("job", f"{where} {how} (HTTP {code}){advice}")


class _SafeRedirects(HTTPRedirectHandler):
    """Follows redirects to https, and from http to http. A token stays with its own server."""

    max_redirections = 5

    def redirect_request(self, req: Request, *others: Any) -> Request:
        """Follow the address that is the last of the arguments. Raises DataFileError."""
        before, after = urlsplit(req.full_url), urlsplit(urljoin(req.full_url, others[-1]))
        if after.scheme != "https" and after.scheme != before.scheme:
            raise DataFileError(
                "server",
                f"{before.hostname} redirects from {before.scheme} to {after.scheme}, which is not followed",
            )
        following = Request(after.geturl().replace(" ", "%20"), headers=dict(req.headers))
        token = req.unredirected_hdrs.get(_AUTHORIZATION)
        if token is not None and (after.scheme, after.netloc) == (before.scheme, before.netloc):
            following.add_unredirected_header(_AUTHORIZATION, token)
        return following

    http_error_308 = HTTPRedirectHandler.http_error_302  # since Python 3.11
    """Follow a permanent redirect."""


def _opener(connections: Connections) -> OpenerDirector:
    """Return an opener without handlers for files, FTP and data: URLs."""
    opener = OpenerDirector()
    for handler in (
        ProxyHandler(),
        connections.handler,
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
            with files.open(path, "rb", block_size=16 << 20, cache_type="readahead") as stream:
                stream.seek(start)
                yield OpenFile(read=stream.read, offset=start, total=about["size"], version=now)
        except transfer_errors() as error:
            raise self._mapped(error) from error

    def _mapped(self, error: BaseException) -> DataFileError:
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


def network_error(error: Exception, server: str) -> DataFileError:
    """Return the error to raise for one of the network, which `server` or this machine caused."""
    reason = error.reason if isinstance(error, URLError) else error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return DataFileError("server", f"the certificate of {server} is not valid: {reason.verify_message}")
    if isinstance(reason, socket.gaierror):
        # Only a definite answer of the name servers is the job's fault.
        if reason.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
            return DataFileError("job", f"there is no server named {server}")
        return InterruptedDownload("host", f"this machine cannot look up {server}: {reason.strerror}")
    if isinstance(reason, OSError) and reason.errno in _NO_NETWORK:
        return InterruptedDownload("host", f"this machine cannot reach {server}: {reason.strerror}")
    if isinstance(reason, TimeoutError):
        return InterruptedDownload("server", f"{server} does not respond")
    if isinstance(reason, HTTPException):
        return InterruptedDownload("server", f"{server} sent an invalid response ({type(reason).__name__})")
    text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return InterruptedDownload("server", f"connection to {server} failed: {text[:200]}")


def disk_error(error: OSError) -> DataFileError:
    """Return the error to raise when a file cannot be written."""
    if error.errno in _NO_SPACE:
        return DataFileError("disk", "the disk is full")
    return DataFileError("host", f"this machine cannot store it: {error.strerror or error}")
