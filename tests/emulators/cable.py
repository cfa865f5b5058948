"""A network cable with faults: a TCP port that leads to another one, slowly, partly, or not at all."""

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self


class Cable:
    """Carries bytes to `target` from a port of its own. Use it in a `with`."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._lock = threading.Lock()
        self._plugs: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._moving = threading.Event()
        self._moving.set()
        self._left: int | None = None
        self._at_the_end = self.cut
        self.address = ("127.0.0.1", 0)
        self.delay_s = 0.0
        """How long every piece takes, each way."""
        self.connections = 0
        """Made so far."""
        self.carried = 0
        """Bytes, both ways together."""

    def __enter__(self) -> Self:
        self.mend()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.refuse()
        self._moving.set()

    def mend(self) -> None:
        """Everything gets through again, at the same address as before."""
        self._left, self.delay_s = None, 0.0
        self._moving.set()
        if self._listener is None:
            self._listener = socket.create_server(self.address)
            self.address = self._listener.getsockname()
            threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def cut(self) -> None:
        """The connections of now break; new ones are carried."""
        with self._lock:
            plugs, self._plugs = self._plugs, set()
        for plug in plugs:
            with contextlib.suppress(OSError):
                plug.shutdown(socket.SHUT_RDWR)
            plug.close()

    def refuse(self) -> None:
        """The connections of now break; new ones are refused."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()

    def stall(self) -> None:
        """Connections stay, and nothing moves on them, nor on new ones."""
        self._moving.clear()

    def cut_after(self, size: int) -> None:
        """As `cut`, once, when `size` more bytes were carried."""
        self._left, self._at_the_end = size, self.cut

    def stall_after(self, size: int) -> None:
        """As `stall`, when `size` more bytes were carried."""
        self._left, self._at_the_end = size, self.stall

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                near, _ = listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target)
            except OSError:
                near.close()
                continue
            self.connections += 1
            with self._lock:
                self._plugs |= {near, far}
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 15):
                self._moving.wait()
                time.sleep(self.delay_s)
                sink.sendall(piece)
                self._count(len(piece))
            sink.shutdown(socket.SHUT_WR)

    def _count(self, size: int) -> None:
        self.carried += size
        with self._lock:
            if self._left is None:
                return
            self._left -= size
            over = self._left <= 0
            if over:
                self._left = None
        if over:
            self._at_the_end()
