"""Session: one command on the machine, bytes in and bytes out, every wait with a limit."""

from __future__ import annotations

import re
import select
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from launcher.errors import UnreachableError

if TYPE_CHECKING:
    from paramiko import Channel

_CHUNK = 1 << 16
_GREETING_LIMIT = 1 << 18
"""Bytes that a machine may say before the command's own output."""


class BrokenError(UnreachableError):
    """The connection broke in the middle of a command."""


class Session:
    """A command that was started as `scripts/session.sh` says. What comes before its mark is left out."""

    def __init__(self, channel: Channel, token: str, *, stall_s: float) -> None:
        """`stall_s`: a connection on which nothing moves for this long is given up."""
        self._channel = channel
        self._stall_s = stall_s
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        self._out, self._err = _Output(token), _Output(token)

    def pid(self) -> int | None:
        """The command's process, which leads a group of its own; None when there is no box to run it in."""
        while self._out.pid is None and self._more(self._stalled_at()):
            pass
        if self._out.pid is None:
            self.exit_code()
            raise UnreachableError(f"the machine's shell does not work: {self.errors()[-200:]!r}")
        return None if self._out.pid == b"none" else int(self._out.pid)

    def send(self, content: bytes) -> bool:
        """All of it is on its way. False when the command takes no more."""
        self._channel.settimeout(self._stall_s)
        try:
            self._channel.sendall(content)
        except TimeoutError as error:
            raise BrokenError(f"nothing moved for {self._stall_s:g} s") from error
        except (OSError, EOFError):
            return False
        return True

    def end_input(self) -> None:
        """The command reads the end of its input."""
        with suppress(OSError, EOFError):  # then the command is over already
            self._channel.shutdown_write()

    def read(self, limit: int) -> bytes:
        """The next bytes of its output: `limit` of them, or all that are left."""
        while self._out.size < limit and self._more(self._stalled_at()):
            pass
        return self._out.take(limit)

    def line(self) -> str:
        """The next line of its output; empty when there is none."""
        while b"\n" not in self._out.data and self._more(self._stalled_at()):
            pass
        return self._out.take(self._out.data.find(b"\n") + 1).decode("ascii", "replace").strip()

    def wait(self, seconds: float) -> int:
        """The exit code; the output is complete. Raises TimeoutError, BrokenError."""
        deadline = time.monotonic() + seconds
        while self._more(deadline):
            pass
        return self.exit_code()

    def exit_code(self) -> int:
        """Of a command that is over."""
        if self._channel.exit_status < 0:
            raise BrokenError("the connection broke")
        return self._channel.exit_status

    def output(self) -> str:
        """What is left of its output, as text."""
        return self._out.take(self._out.size).decode("utf-8", "replace")

    def errors(self) -> str:
        """What it wrote to stderr; before it started, what the machine said there."""
        return bytes(self._err.data).decode("utf-8", "replace")

    def greeting(self) -> str:
        """What the machine said before the command's own output."""
        return (self._out.greeting + b"\n" + self._err.greeting).decode("utf-8", "replace")

    def close(self) -> None:
        """The command's output is not wanted any more. A line that is broken already is no fault here."""
        with suppress(EOFError, OSError):
            self._channel.close()

    def _stalled_at(self) -> float:
        return time.monotonic() + self._stall_s

    def _more(self, deadline: float) -> bool:
        """Takes in what has come; False when the command is over. Raises TimeoutError, BrokenError."""
        channel = self._channel
        over = channel.eof_received or channel.closed  # looked at first: what comes before it is not missed
        if self._take_in():
            return True
        if not over:
            self._await(deadline)
            return True
        if not channel.status_event.wait(max(0.0, deadline - time.monotonic())):
            raise TimeoutError
        return False

    def _take_in(self) -> bool:
        channel = self._channel
        try:
            if channel.recv_ready():
                self._out.feed(channel.recv(_CHUNK))
            elif channel.recv_stderr_ready():
                self._err.feed(channel.recv_stderr(_CHUNK))
            else:
                return False
        except (OSError, EOFError) as error:
            raise BrokenError("the connection broke") from error
        return True

    def _await(self, deadline: float) -> None:
        if not self._poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise TimeoutError


class _Output:
    """Bytes of one stream, from the mark on that says where the command's own begin."""

    def __init__(self, token: str) -> None:
        self._mark = re.compile(rb"\n?%s (\d+|none)\n" % token.encode())
        self.data = bytearray()
        self.greeting = b""
        self.pid: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.data) if self.pid is not None else 0

    def feed(self, chunk: bytes) -> None:
        self.data += chunk
        if self.pid is not None:
            return
        mark = self._mark.search(self.data)
        if mark is not None:
            self.greeting, self.pid = bytes(self.data[: mark.start()]), mark[1]
            del self.data[: mark.end()]
        elif len(self.data) > _GREETING_LIMIT:
            raise UnreachableError("the machine's shell says too much before it runs a command")

    def take(self, limit: int) -> bytes:
        taken = bytes(self.data[:limit]) if self.pid is not None else b""
        del self.data[: len(taken)]
        return taken
