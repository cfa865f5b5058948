"""Server: GET on loopback, for one token. Whoever does not have it learns nothing, whatever asks."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from vastrun.launcher.core.errors import UsageError, VastrunError
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.outputs.store import PAGE_FAULTS

LOOPBACK = "127.0.0.1"
_ANSWER_S = 10.0
"""A connection that says nothing for so long is closed."""
_ADDRESS_CHARACTERS = 1000
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Type": "text/html; charset=utf-8",
    # What a page may do is in its own policy, by hashes; this holds for what is no page, and against frames.
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""The token is in the address: no other page may learn it, or show what it opens."""

Page = Callable[[Sequence[str], str], str | None]
"""The page at the words of an address, and what stands behind its `?`; None: there is none."""


class Server(ThreadingHTTPServer):
    """Listens from when it is made until it is closed. `address` is what the user opens."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, page: Page, port: int = 0) -> None:
        """`port`: 0 takes a free one. Raises UsageError where the port cannot be had."""
        self.page = page
        self.token = secrets.token_urlsafe(32)
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(f"cannot listen on port {port}: {reason}", hint="vastrun ui --port 0") from error

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """The address with the token."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> frozenset[str]:
        """Names by which a browser here asks: any other is that of a page which wants to pass for us."""
        return frozenset({f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"})

    def handle_error(self, *_: object) -> None:
        """Say nothing of a connection that broke."""


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = _ANSWER_S

    def do_GET(self) -> None:
        status, text = self._answer()
        content = text.encode("utf-8", "replace")
        self.send_response_only(status)
        for name, value in {**_HEADERS, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Refuse what is no GET, or no HTTP: in a word, with the same headers."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else code
        self.send_response_only(status)
        for name, value in {**_HEADERS, "Content-Type": "text/plain", "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

    def _answer(self) -> tuple[HTTPStatus, str]:
        if not self._is_ours():
            return HTTPStatus.FORBIDDEN, "refused\n"
        parts = self._parts()
        if parts is None:
            return HTTPStatus.NOT_FOUND, "nothing is here\n"
        try:
            text = self.server.page(parts, urlsplit(self.path).query)
        except (VastrunError, OSError, *PAGE_FAULTS) as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, f"<pre>{_escaped(str(error))}</pre>\n"
        return (HTTPStatus.NOT_FOUND, "nothing is here\n") if text is None else (HTTPStatus.OK, text)

    def _is_ours(self) -> bool:
        """Whether it is asked for by the user, or by a page of ours: not in the name of another site."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            return False
        return self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def _parts(self) -> Sequence[str] | None:
        """The words of the address after the token; None where that is not ours."""
        if len(self.path) > _ADDRESS_CHARACTERS:
            return None
        token, *parts = urlsplit(self.path).path.removeprefix("/").split("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or not parts:
            return None
        return [] if parts == [""] else [unquote(part) for part in parts]

    def log_message(self, *_: object) -> None:
        """Write no request down: its address holds the token."""


def _escaped(text: str) -> str:
    from html import escape

    return escape(one_line(text))
