"""Session: one command on the machine, bytes in and bytes out, every wait with a limit."""

from __future__ import annotations

import re
import select
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from vastrun.launcher.core.errors import BoxError, UnreachableError
from vastrun.launcher.gate import caps

if TYPE_CHECKING:
    from paramiko import Channel

_CHUNK = 1 << 16
_HEED_S = 1.0
_MARK_BYTES = 100
"""More than the mark has that comes before a command's output."""

Check = Callable[[], None]
"""Raises when nobody waits any more."""


class BrokenError(UnreachableError):
    """The connection broke in the middle of a command."""


class SshSession:
    """A command that was started as `scripts/session.sh` says. What comes before its mark is left out."""

    def __init__(self, channel: Channel, token: str, *, stall_s: float, check: Check = lambda: None) -> None:
        """`stall_s`: a connection on which nothing moves for this long is given up. `check` is called every
        second while the machine is waited for.
        """
        self._channel = channel
        self._stall_s, self._check = stall_s, check
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        self._out, self._err = _Output(token), _Output(token)
        self._heeded_at = time.monotonic()

    def pid(self) -> int | None:
        """Return the command's process, which leads a group of its own; None: it has no box to run in."""
        until = self._stalled_at()
        while self._out.pid is None and self._more(until):
            pass
        if self._out.pid is None:
            self.exit_code()
            raise UnreachableError(f"the machine's shell does not work: {self.errors()[-200:]!r}")
        return None if self._out.pid == b"none" else int(self._out.pid)

    def send(self, content: bytes) -> bool:
        """Send all of it. Returns False when the command takes no more."""
        view, until = memoryview(content), self._stalled_at()
        # Short, so that the user's request is seen although nothing moves; `until` is the real limit.
        self._channel.settimeout(_HEED_S)
        while view:
            self._check()
            try:
                sent = self._channel.send(bytes(view[:_CHUNK]))
            except TimeoutError as error:
                if time.monotonic() > until:
                    raise BrokenError(f"nothing moved for {self._stall_s:g} s") from error
                continue
            except (OSError, EOFError):
                return False
            if not sent:
                return False
            view, until = view[sent:], self._stalled_at()
        return True

    def end_input(self) -> None:
        """Let the command read the end of its input."""
        with suppress(OSError, EOFError):  # then the command is over already
            self._channel.shutdown_write()

    def read(self, limit: int) -> bytes:
        """Read the next bytes of its output: `limit` of them, all that are left, or what comes within READ_S.

        Raises TimeoutError when that is nothing.
        """
        until = min(self._stalled_at(), time.monotonic() + caps.READ_S)
        try:
            while self._out.size < limit and self._more(until):
                pass
        except TimeoutError:
            if not self._out.size:
                raise
        return self._out.take(limit)

    def line(self) -> str:
        """Read the next line of its output; empty when there is none. Raises BoxError when it is too long."""
        until = self._stalled_at()
        while b"\n" not in self._out.data and self._more(until):
            if len(self._out.data) > caps.REPLY_BYTES and b"\n" not in self._out.data:
                raise BoxError(f"the machine answers with more than {caps.REPLY_BYTES} bytes in a line")
        return self._out.take(self._out.data.find(b"\n") + 1).decode("ascii", "replace").strip()

    def wait(self, seconds: float) -> int:
        """Return the exit code; the output is complete.

        Raises TimeoutError, BrokenError; BoxError when the command prints too much.
        """
        deadline = time.monotonic() + seconds
        while self._more(deadline):
            if self._out.size > caps.COMMAND_BYTES:
                raise BoxError(f"a command printed more than {caps.COMMAND_BYTES} bytes")
        return self.exit_code()

    def exit_code(self) -> int:
        """Return the exit code of a command that is over."""
        if self._channel.exit_status < 0:
            raise BrokenError("the connection broke")
        return self._channel.exit_status

    def output(self) -> str:
        """Return what is left of its output, as text."""
        return self._out.take(self._out.size).decode("utf-8", "replace")

    def errors(self) -> str:
        """Return what it wrote to stderr; before it started, what the machine said there."""
        return bytes(self._err.data).decode("utf-8", "replace")

    def greeting(self) -> str:
        """Return what the machine said before the command's own output."""
        return (self._out.greeting + b"\n" + self._err.greeting).decode("utf-8", "replace")

    def close(self) -> None:
        """Let go of the command's output. A line that is broken already is no fault here."""
        with suppress(EOFError, OSError):
            self._channel.close()

    def _stalled_at(self) -> float:
        return time.monotonic() + self._stall_s

    def _more(self, deadline: float) -> bool:
        """Takes in what has come; False when the command is over. Raises TimeoutError, BrokenError."""
        channel = self._channel
        over = channel.eof_received or channel.closed  # looked at first: what comes before it is not missed
        if self._take_in():
            if (
                time.monotonic() - self._heeded_at >= _HEED_S
            ):  # output that never pauses must not keep us here
                self._heed(deadline)
            return True
        if not over:
            self._await(deadline)
            return True
        while not channel.status_event.wait(self._next_look(deadline)):
            self._heed(deadline)
        return False

    def _take_in(self) -> bool:
        channel = self._channel
        try:
            if channel.recv_ready():
                self._out.feed(channel.recv(_CHUNK))
            elif channel.recv_stderr_ready():
                # Checked before it is stored: whoever asks this session again must not add to it.
                if self._err.size > caps.COMMAND_BYTES:
                    raise BoxError(f"the machine printed more than {caps.COMMAND_BYTES} bytes of errors")
                self._err.feed(channel.recv_stderr(_CHUNK))
            else:
                return False
        except (OSError, EOFError) as error:
            raise BrokenError("the connection broke") from error
        return True

    def _await(self, deadline: float) -> None:
        while not self._poll.poll(self._next_look(deadline) * 1000):
            self._heed(deadline)

    def _heed(self, deadline: float) -> None:
        self._check()
        self._heeded_at = time.monotonic()
        if self._heeded_at >= deadline:
            raise TimeoutError

    @staticmethod
    def _next_look(deadline: float) -> float:
        return max(0.0, min(_HEED_S, deadline - time.monotonic()))


class _Output:
    """Bytes of one stream, from the mark on that says where the command's own begin."""

    def __init__(self, token: str) -> None:
        self._mark = re.compile(rb"\n?%s (\d{1,10}|none)\n" % token.encode())
        self.data = bytearray()
        self.greeting = b""
        self.pid: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.data) if self.pid is not None else 0

    def feed(self, chunk: bytes) -> None:
        seen = len(self.data)
        self.data += chunk
        if self.pid is not None:
            return
        mark = self._mark.search(self.data, max(0, seen - _MARK_BYTES))
        if mark is not None:
            self.greeting, self.pid = bytes(self.data[: mark.start()]), mark[1]
            del self.data[: mark.end()]
        elif len(self.data) > caps.GREETING_BYTES:
            raise BoxError("the machine's shell prints too much before it runs a command")

    def take(self, limit: int) -> bytes:
        taken = bytes(self.data[:limit]) if self.pid is not None else b""
        del self.data[: len(taken)]
        return taken
