"""PendingSocket: a TCP connection that can be given up while it is opened."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError, wait
from contextlib import suppress
from errno import EINVAL

from launcher.core.errors import UnreachableError

_CHECK_INTERVAL_S = 1.0
_UNACKNOWLEDGED_MS = 30_000


class PendingSocket:
    """Opens the connection in a thread: nothing else ends the system's name resolution or its connect().

    pending = PendingSocket(("host", 22), timeout_s=8)
    connected = pending.wait(check)
    """

    def __init__(self, address: tuple[str, int], timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._opened: Future[socket.socket] = Future()
        threading.Thread(target=self._open, name="tcp connect", daemon=True).start()

    def wait(self, check: Callable[[], None]) -> socket.socket:
        """Return the socket. `check` is called each second; what it raises ends the wait.

        Raises OSError as `connect()` does; UnreachableError once it was closed.
        """
        try:
            while not wait([self._opened], timeout=_CHECK_INTERVAL_S).done:
                check()
            return self._opened.result()
        except CancelledError as error:
            raise UnreachableError("connection attempt aborted") from error
        finally:
            self.close()

    def close(self) -> None:
        """Give up the connection, from any thread; one that is open already stays open."""
        self._opened.cancel()

    def _open(self) -> None:
        plug: socket.socket | None = None
        try:
            plug = socket.create_connection(self._address, timeout=self._timeout_s)
            plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNACKNOWLEDGED_MS)
            self._opened.set_result(plug)
        except InvalidStateError:  # it was given up meanwhile
            if plug is not None:
                plug.close()
        except (OSError, UnicodeError) as error:
            is_name = isinstance(error, UnicodeError)  # of the encoding of host names
            with suppress(InvalidStateError):
                self._opened.set_exception(OSError(EINVAL, "invalid host name") if is_name else error)
