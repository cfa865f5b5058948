"""Transfers over SSH: uploads that resume after an interruption; downloads of parts by one command."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable
from typing import BinaryIO

from vastrun.launcher.core.errors import BoxError, ProviderError, SliceOverError, UnreachableError
from vastrun.launcher.gate import caps
from vastrun.launcher.ssh.connection import script
from vastrun.launcher.ssh.session import ConnectionLostError, SshSession

_RESPONSE_S = 20.0
_MIN_HASH_BYTES_PER_S = 20e6
"""Checksum speed that every machine reaches."""
_MIN_UPLOAD_BYTES_PER_S = 16e3
"""A machine that accepts an upload more slowly counts as unreachable."""
_DAMAGED = 4
_CUT_SHORT = 3

Start = Callable[..., SshSession]
_READ_AHEAD_BYTES = 64 << 20
"""Largest request, when a file is read sequentially over a fast line."""
_MIN_REQUEST_BYTES = 1 << 10
_MAX_SIZE_DIGITS = 18
_MAX_DISCARDED_BYTES = 1 << 18
"""An obsolete response with at most this many bytes left is read to its end; a longer one is cut off."""


class Upload:
    """Upload of one file: stored under a hidden name with its checksum, then renamed."""

    def __init__(self, source: BinaryIO, path: str, mode: int) -> None:
        self._source = source
        self._path, self._mode = path, mode
        self._sha256 = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]
        self._size = source.seek(0, io.SEEK_END)

    def run(self, start: Start) -> bool:
        """Send the file to the box; return False when it arrived damaged.

        Raises ConnectionLostError, after which it may be called again, and ProviderError.
        """
        words = (self._path, str(self._size), self._sha256, f"{self._mode:o}")
        session = start(*script("store"), *words)
        try:
            first_block = session.line()
            if first_block.isdecimal() and len(first_block) <= 15:  # else its exit code says why
                self._source.seek(min(int(first_block) * 65536, self._size))
                until = time.monotonic() + _RESPONSE_S + self._size / _MIN_UPLOAD_BYTES_PER_S
                while (chunk := self._source.read(1 << 16)) and session.send(chunk):
                    if time.monotonic() > until:
                        slowest = f"{_MIN_UPLOAD_BYTES_PER_S / 1e3:.0f} kB/s"
                        raise UnreachableError(f"the upload of {self._path} is slower than {slowest}")
            session.end_input()
            session.line()  # "received": a silent connection is detected before the long wait for the sum
            # All bytes are sent: the checksum of the whole file on a slow disk remains.
            exit_code = session.wait(_RESPONSE_S + self._size / _MIN_HASH_BYTES_PER_S)
        except TimeoutError as error:
            raise ConnectionLostError("nothing moved for too long") from error
        finally:
            session.close()
        if exit_code == _CUT_SHORT:
            raise ConnectionLostError("the connection broke")
        if exit_code not in (0, _DAMAGED):
            reply = session.errors()
            if "No space left" in reply or "quota exceeded" in reply:
                hint = "ask for more: resources.disk_gb"
                raise ProviderError("no space left on the machine's disk", hint=hint)
            raise ProviderError(f"the machine rejected the file: {reply.strip()[-200:]}")
        return exit_code == 0


class Download:
    """Reads parts of files by one command on the box, and tracks the response that is being read."""

    def __init__(self, start: Callable[..., SshSession]) -> None:
        """`start` starts a command on the box."""
        self._start = start
        self._session: SshSession | None = None
        self._path, self._at, self._left = "", 0, 0
        self._asked, self._waited_s = 0, 0.0
        """Bytes of the response, and the seconds that were waited for them."""
        self._max_request = 1 << 16

    def read(self, path: str, offset: int, limit: int) -> bytes:
        """Read up to `limit` bytes from `offset`. Raises ConnectionLostError, after which a retry is safe."""
        try:
            content, until = self._part(path, offset, limit), time.monotonic() + caps.READ_S
            # A response that is shorter than its request is the end of the file.
            while len(content) < limit and self._asked == self._max_request and time.monotonic() < until:
                content += self._part(path, offset + len(content), limit - len(content))
            return content
        except TimeoutError as error:
            raise ConnectionLostError("nothing moved for too long") from error
        except BoxError:
            self.close()  # later bytes could still belong to this response
            raise

    def close(self) -> None:
        """End the command."""
        if self._session is not None:
            self._session.close()
        self._session, self._path, self._left = None, "", 0

    def _part(self, path: str, offset: int, limit: int) -> bytes:
        in_order = (path, offset) == (self._path, self._at)
        if not (in_order and self._left):
            try:
                self._request(path, offset, max(limit, _READ_AHEAD_BYTES) if in_order else limit)
            except SliceOverError:
                self.close()  # its response could come later
                raise
        return self._take(min(limit, self._left))

    def _request(self, path: str, offset: int, limit: int) -> None:
        """Send a request; its response is next in the output."""
        # The next response takes READ_S at most: the next status waits behind what is on its way.
        received = self._asked - self._left
        if self._waited_s > caps.READ_S:
            self._max_request = max(_MIN_REQUEST_BYTES, int(received * caps.READ_S / self._waited_s))
        elif received == self._max_request:
            self._max_request = min(4 * received, _READ_AHEAD_BYTES)
        limit = min(limit, self._max_request)
        if self._left > _MAX_DISCARDED_BYTES or self._waited_s > caps.READ_S:
            self.close()  # too much to read, or too slow
        self._take(self._left)
        if self._left:
            self.close()
        if self._session is None:
            self._session = self._start(*script("fetch"))
        self._session.send(os.fsencode(f"{path}\0{offset}\0{limit}\0"))
        reply = self._session.line()
        if not reply:
            raise ConnectionLostError("the connection broke")
        if not reply.isdecimal():
            raise BoxError(f"the machine cannot read {path}: it {reply}")
        if len(reply) > _MAX_SIZE_DIGITS or int(reply) > limit:
            raise BoxError(f"the machine sent more of {path} than requested")
        self._path, self._at, self._left = path, offset, int(reply)
        self._asked, self._waited_s = int(reply), 0.0

    def _take(self, size: int) -> bytes:
        if self._session is None or size == 0:
            return b""
        began = time.monotonic()
        try:
            content = self._session.read(size)
        finally:
            self._waited_s += time.monotonic() - began
        if not content:
            raise ConnectionLostError("the connection broke")
        self._at += len(content)
        self._left -= len(content)
        return content


class Following:
    """A file whose new bytes a command on the box sends as they are written."""

    def __init__(self, session: SshSession, path: str, offset: int) -> None:
        self.path = path
        self._session = session
        self._at = offset
        self._content = bytearray()
        """The bytes of the file from `_at` on."""

    def end(self) -> int:
        """Return up to where the file is known, without waiting. Raises ConnectionLostError, BoxError."""
        if len(self._content) < caps.FOLLOWED_BYTES:
            self._content += self._session.received()
        return self._at + len(self._content)

    def read(self, offset: int, limit: int) -> bytes | None:
        """Return up to `limit` bytes from `offset`, which no later call asks for again; None: not known."""
        if not self._at <= offset <= self._at + len(self._content):
            return None
        del self._content[: offset - self._at]
        self._at = offset
        return bytes(self._content[:limit])

    def close(self) -> None:
        """End the command."""
        self._session.close()
