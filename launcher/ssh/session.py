"""Session: one command on the machine, with limits for every wait and output, without the login's noise."""

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
_CHECK_INTERVAL_S = 1.0
_MARK_BYTES = 100
"""Upper bound for the length of the mark that precedes a command's output."""

Check = Callable[[], None]
"""Raises when the caller should stop waiting."""
_NOISE = re.compile(
    r"remote port forwarding failed for listen port \d+"
    r"|^Welcome to vast\.ai\b|^Have fun!$"
    r"|^Warning: Permanently added .+ to the list of known hosts"
    r"|setlocale: LC_\w+: cannot change locale"
)
"""Lines that logins write to the stderr of a command."""


class ConnectionLostError(UnreachableError):
    """The connection broke in the middle of a command."""


class SshSession:
    """A command started by `scripts/session.sh`. Output before its mark is not part of the command's."""

    def __init__(self, channel: Channel, token: str, *, stall_s: float, check: Check = lambda: None) -> None:
        """`stall_s`: seconds without progress after which the connection counts as lost. `check` is called
        every second during waits.
        """
        self._channel = channel
        self._stall_s, self._check = stall_s, check
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        self._out, self._err = _Output(token), _Output(token)
        self._checked_at = time.monotonic()

    def pid(self) -> int | None:
        """Return the pid of the command, a group leader; None when the box's folder does not exist."""
        until = self._stall_deadline()
        while self._out.pid is None and self._receive_more(until):
            pass
        if self._out.pid is None:
            self.exit_code()
            raise UnreachableError(f"the machine's shell does not work: {self.errors()[-200:]!r}")
        return None if self._out.pid == b"none" else int(self._out.pid)

    def send(self, content: bytes) -> bool:
        """Send the content to stdin. Return False when the command closed its input."""
        view, until = memoryview(content), self._stall_deadline()
        # Short, so that `check` is called although nothing moves; `until` is the real limit.
        self._channel.settimeout(_CHECK_INTERVAL_S)
        while view:
            self._check()
            try:
                sent = self._channel.send(bytes(view[:_CHUNK]))
            except TimeoutError as error:
                if time.monotonic() > until:
                    raise ConnectionLostError(f"nothing moved for {self._stall_s:g} s") from error
                continue
            except (OSError, EOFError):
                return False
            if not sent:
                return False
            view, until = view[sent:], self._stall_deadline()
        return True

    def end_input(self) -> None:
        """Close the command's stdin."""
        with suppress(OSError, EOFError):  # then the command is over already
            self._channel.shutdown_write()

    def read(self, limit: int) -> bytes:
        """Read up to `limit` bytes of output; fewer at its end, or READ_S after the first one.

        Raises TimeoutError when nothing arrived.
        """
        until = self._stall_deadline()
        while not self._out.size and self._receive_more(until):
            pass
        until = time.monotonic() + caps.READ_S
        with suppress(TimeoutError):
            while self._out.size < limit and time.monotonic() < until and self._receive_more(until):
                pass
        return self._out.take(limit)

    def received(self) -> bytes:
        """Return the output that has arrived; never waits. Raises ConnectionLostError at its end."""
        over = self._channel.eof_received or self._channel.closed
        while self._out.size < _CHUNK and self._receive():
            pass
        if over and not self._out.size:
            raise ConnectionLostError("the command ended")
        return self._out.take(self._out.size)

    def line(self) -> str:
        """Read the next line of output; empty at its end. Raises BoxError when the line is too long."""
        until = self._stall_deadline()
        while b"\n" not in self._out.data and self._receive_more(until):
            if len(self._out.data) > caps.REPLY_BYTES and b"\n" not in self._out.data:
                raise BoxError(f"the machine sent a line of more than {caps.REPLY_BYTES} bytes")
        return self._out.take(self._out.data.find(b"\n") + 1).decode("ascii", "replace").strip()

    def wait(self, seconds: float) -> int:
        """Wait for the end of the command and return its exit code.

        Raises TimeoutError, ConnectionLostError; BoxError when the command prints too much.
        """
        deadline = time.monotonic() + seconds
        while self._receive_more(deadline):
            if self._out.size > caps.COMMAND_BYTES:
                raise BoxError(f"a command printed more than {caps.COMMAND_BYTES} bytes")
        return self.exit_code()

    def exit_code(self) -> int:
        """Return the exit code of a finished command."""
        if self._channel.exit_status < 0:
            raise ConnectionLostError("the connection broke")
        return self._channel.exit_status

    def output(self) -> str:
        """Return the unread output as text."""
        return self._out.take(self._out.size).decode("utf-8", "replace")

    def errors(self) -> str:
        """Return the command's stderr; before its start, the machine's."""
        lines = bytes(self._err.data).decode("utf-8", "replace").split("\n")
        return "\n".join(line for line in lines if not _NOISE.search(line.rstrip("\r")))

    def close(self) -> None:
        """Close the channel. A connection that is broken already is not an error here."""
        with suppress(EOFError, OSError):
            self._channel.close()

    def _stall_deadline(self) -> float:
        return time.monotonic() + self._stall_s

    def _receive_more(self, deadline: float) -> bool:
        """Receive output, or wait for it; False when the command is over.

        Raises TimeoutError, ConnectionLostError.
        """
        channel = self._channel
        over = channel.eof_received or channel.closed  # read first, so that no earlier data is missed
        if self._receive():
            # Output that never pauses must not delay the checks.
            if time.monotonic() - self._checked_at >= _CHECK_INTERVAL_S:
                self._check_deadline(deadline)
            return True
        if not over:
            while not self._poll.poll(self._poll_timeout_s(deadline) * 1000):
                self._check_deadline(deadline)
            return True
        while not channel.status_event.wait(self._poll_timeout_s(deadline)):
            self._check_deadline(deadline)
        return False

    def _receive(self) -> bool:
        channel = self._channel
        try:
            if channel.recv_ready():
                self._out.feed(channel.recv(_CHUNK))
            elif channel.recv_stderr_ready():
                # Checked before it is stored: a further call on this session must not add to it.
                if self._err.size > caps.COMMAND_BYTES:
                    raise BoxError(f"the machine printed more than {caps.COMMAND_BYTES} bytes of errors")
                self._err.feed(channel.recv_stderr(_CHUNK))
            else:
                return False
        except (OSError, EOFError) as error:
            raise ConnectionLostError("the connection broke") from error
        return True

    def _check_deadline(self, deadline: float) -> None:
        self._check()
        self._checked_at = time.monotonic()
        if self._checked_at >= deadline:
            raise TimeoutError

    @staticmethod
    def _poll_timeout_s(deadline: float) -> float:
        return max(0.0, min(_CHECK_INTERVAL_S, deadline - time.monotonic()))


class _Output:
    """Bytes of one stream: the command's output, without the machine's greeting before the mark."""

    def __init__(self, token: str) -> None:
        self._mark = re.compile(rb"\n?%s (\d{1,10}|none)\n" % token.encode())
        self.data = bytearray()
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
            self.pid = mark[1]
            del self.data[: mark.end()]
        elif len(self.data) > caps.GREETING_BYTES:
            raise BoxError("the machine's shell prints too much before it runs a command")

    def take(self, limit: int) -> bytes:
        content = bytes(self.data[:limit]) if self.pid is not None else b""
        del self.data[: len(content)]
        return content
