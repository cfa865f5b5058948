"""The HTTP server: requests in, replies out, and the world moved along while nobody asks."""

import sys
import threading
import time
from collections.abc import Callable
from http.server import ThreadingHTTPServer

from tests.emulators.answers import Reply
from tests.emulators.api import Request
from tests.http_servers import QuietHandler

Answer = Callable[[Request], Reply]


class Server(ThreadingHTTPServer):
    """Listens on one address only."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], answer: Callable[[Request], Reply], now: Callable[[], float]
    ) -> None:
        super().__init__(address, _RequestHandler)
        self.answer = answer
        self.now = now
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="api", daemon=True)

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients may hang up; anything else is a fault of ours and is printed."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    @property
    def url(self) -> str:
        """Where it answers."""
        return "http://{}:{}".format(*self.server_address[:2])

    def start(self) -> None:
        """It answers from now on."""
        self._thread.start()

    def stop(self) -> None:
        """It does not answer any more."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _RequestHandler(QuietHandler):
    protocol_version = "HTTP/1.1"
    server_version = "vast-emulator"
    disable_nagle_algorithm = True
    server: Server

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        request = Request(
            method=self.command,
            target=self.path,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(length) if length else b"",
            address=self.client_address[0],
        )
        reply = self.server.answer(request)
        if reply.hang_s:
            time.sleep(reply.hang_s)
        if reply.cut:
            self.close_connection = True
            return
        self.answer(reply.status, reply.body, Content_Type=reply.content_type, **reply.headers)

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The emulator's time, not this computer's."""
        return super().date_time_string(self.server.now() if timestamp is None else timestamp)

    do_GET = do_POST = do_PUT = do_DELETE = _serve
