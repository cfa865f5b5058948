"""Server: answers GET requests on loopback that carry the token; all others learn nothing."""

from __future__ import annotations

import hmac
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import unquote, urlsplit

from vastrun.launcher.batch.results import batch_report_of, row_in
from vastrun.launcher.commands.queries import all_rows
from vastrun.launcher.commands.report import report_of
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import NoSuchRunError, UsageError, VastrunError
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.outputs.store import PAGE_FAULTS
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.report.batch_page import batch_page
from vastrun.launcher.ui.report.index_page import Index, PageQuery, index_page, parse_query, run_address
from vastrun.launcher.ui.report.page import Frame
from vastrun.launcher.ui.report.run_page import run_page

LOOPBACK = "127.0.0.1"
_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    # Each page has its own, stricter policy by hashes; this one is for other responses, and against frames.
    "Content-Security-Policy": "frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of all responses: the address contains the token, so no other page may learn it or embed a page."""

Page = Callable[[Sequence[str], str], str | None]
"""Makes the page of an address from its path segments and its query; None if there is none."""
REFRESH_S = 3
"""Seconds between two refreshes of a browser; more for a page that takes long to make."""
_INTERVAL_FACTOR = 20
"""Minimum refresh interval of a page as a multiple of the time to make it,"""
_MAX_INTERVAL_S = 60.0
"""but never longer than this: a page may be slow only because the computer was busy."""


class Server(ThreadingHTTPServer):
    """Listens from its creation until it is closed. `address` is for the user's browser."""

    daemon_threads = True
    block_on_close = False

    def __init__(
        self, page: Page, port: int = 0, *, token: str = "", content_type: str = "text/html; charset=utf-8"
    ) -> None:
        """`port`: 0 for a free one. `token`: empty for a new one. `content_type`: that of the pages.

        Raises UsageError if the port is not available.
        """
        self.page = page
        self.token = token or secrets.token_urlsafe(32)
        self.content_type = content_type
        try:
            super().__init__((LOOPBACK, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UsageError(
                f"cannot listen on port {port}: {reason}", hint="port 0 takes a free one"
            ) from error

    @property
    def port(self) -> int:
        """Port that it listens on."""
        return int(self.server_address[1])

    @property
    def address(self) -> str:
        """Address with the token."""
        return f"http://{LOOPBACK}:{self.port}/{self.token}/"

    @property
    def hosts(self) -> frozenset[str]:
        """Valid Host headers; any other is from a page that pretends to be this server (DNS rebinding)."""
        return frozenset({f"{LOOPBACK}:{self.port}", f"localhost:{self.port}"})

    def handle_error(self, *_: object) -> None:
        """Ignore broken connections."""


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    server: Server
    timeout = 10.0

    def do_GET(self) -> None:
        status, text = self._answer()
        content = text.encode("utf-8", "replace")
        self.send_response_only(status)
        kind = self.server.content_type if status == HTTPStatus.OK else "text/html; charset=utf-8"
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:  # noqa: ARG002
        """Reject other methods and malformed requests, with the same headers."""
        status = HTTPStatus.METHOD_NOT_ALLOWED if code == HTTPStatus.NOT_IMPLEMENTED else code
        self.send_response_only(status)
        for name, value in {**_HEADERS, "Content-Type": "text/plain", "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()

    def _answer(self) -> tuple[HTTPStatus, str]:
        if not self._is_same_origin():
            return HTTPStatus.FORBIDDEN, "forbidden\n"
        parts = self._parts()
        if parts is None:
            return HTTPStatus.NOT_FOUND, "not found\n"
        try:
            text = self.server.page(parts, urlsplit(self.path).query)
        except (VastrunError, OSError, *PAGE_FAULTS) as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, f"<pre>{escape(one_line(str(error)))}</pre>\n"
        return (HTTPStatus.NOT_FOUND, "not found\n") if text is None else (HTTPStatus.OK, text)

    def _is_same_origin(self) -> bool:
        """Return whether the request comes from the user or from a page of this server, not another site."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return False
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            return False
        return self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")

    def _parts(self) -> Sequence[str] | None:
        """Return the path segments after the token, or all if a header has it; None: it is wrong."""
        if len(self.path) > 1000:
            return None
        parts = urlsplit(self.path).path.removeprefix("/").split("/")
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token, *parts = parts
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or not parts:
            return None
        return [] if parts == [""] else [unquote(part) for part in parts]

    def log_message(self, *_: object) -> None:
        """Log no requests: their addresses contain the token."""


@dataclass(frozen=True, kw_only=True)
class _PageRequest:
    """A request for a page."""

    kind: str
    name: str
    """Name of the run or batch; empty for the list."""
    query: PageQuery


class Site:
    """Makes pages, one at a time; `page` is called by many threads."""

    def __init__(
        self, ledger: Callable[[], Ledger], now: Callable[[], float], refresh_s: float = REFRESH_S
    ) -> None:
        self._ledger, self._now, self._refresh_s = ledger, now, refresh_s
        self._lock = Lock()
        self._cache: dict[_PageRequest, tuple[str, float]] = {}
        """Text of a page, and when it was made."""
        self._took_s: dict[str, float] = {}

    def page(self, parts: Sequence[str], query: str = "") -> str | None:
        """Return the page of an address, or None.

        `parts`: its path segments. `query`: the part after its `?`.
        """
        kind = parts[0] if parts else ""
        # The list has no segments, a page has two: `run/ID`, `batch/NAME`.
        maker = _MAKERS.get(kind) if len(parts) == (2 if kind else 0) else None
        if maker is None:
            return None
        request = _PageRequest(name=parts[-1] if parts else "", kind=kind, query=parse_query(query))
        with self._lock:
            text, made_at = self._cache.get(request, ("", -math.inf))
            if 0 <= self._now() - made_at < 1.0:
                return text
            began = time.perf_counter()
            min_interval_s = min(_MAX_INTERVAL_S, round(_INTERVAL_FACTOR * self._took_s.get(kind, 0.0), 1))
            refresh_s = max(self._refresh_s, min_interval_s)
            try:
                text = maker(self, request, refresh_s)
            except (NoSuchRunError, UsageError):
                return None
            self._took_s[kind] = time.perf_counter() - began
            if len(self._cache) >= 50:
                self._cache.clear()
            self._cache[request] = (text, self._now())
            return text

    def index(self, request: _PageRequest, refresh_s: float) -> str:
        """Write the list of the requested batches and runs."""
        ledger, now = self._ledger(), self._now()
        batches = [row_in(ledger, batch.name, now) for batch in ledger.batches.all()]
        index = Index(runs=all_rows(ledger, now), batches=batches, query=request.query, made_at=now)
        return index_page(index, Frame(refresh_s=refresh_s, has_form=True))

    def run(self, request: _PageRequest, refresh_s: float) -> str:
        """Write the page of a run; that of an ended run is final."""
        ledger, now = self._ledger(), self._now()
        run = ledger.get(request.name)
        over = run.phase is Phase.ENDED
        frame = Frame(home="../", refresh_s=None if over else refresh_s)
        return run_page(
            report_of(ledger, run, now), frame, address_of=lambda run: f"../{run_address(run.id)}"
        )

    def batch(self, request: _PageRequest, refresh_s: float) -> str:
        """Write the page of a batch."""
        report = batch_report_of(self._ledger(), request.name, self._now())
        is_open = report.progress.running or report.progress.waiting
        frame = Frame(home="../", refresh_s=refresh_s if is_open else self._refresh_s * _INTERVAL_FACTOR)
        return batch_page(report, lambda run: f"../{run_address(run.id)}", frame)


Maker = Callable[[Site, _PageRequest, float], str]
_MAKERS: Mapping[str, Maker] = {"": Site.index, "run": Site.run, "batch": Site.batch}
"""Page makers by the first segment of an address."""
