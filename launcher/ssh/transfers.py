"""Transfers by SSH: an upload goes on where it was cut off; a download reads parts by one command."""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable
from typing import BinaryIO

from vastrun.launcher.core.errors import BoxError, ProviderError, UnreachableError
from vastrun.launcher.ssh.connection import script
from vastrun.launcher.ssh.session import BrokenError, SshSession

_BLOCK = 65536
_CHUNK = 1 << 16
_SETTLE_S = 20.0
_CHECKED_PER_S = 20e6
"""Bytes whose checksum any machine computes in a second."""
_DIGITS = 15
_SLOWEST_PER_S = 16e3
"""Bytes of an upload; a machine that takes them more slowly may as well take none."""
_DAMAGED = 4
_CUT_SHORT = 3

Start = Callable[..., SshSession]
_AHEAD = 64 << 20
"""Bytes asked for at once by who reads a file in order."""
_SIZE_DIGITS = 18
_SKIPPED = 1 << 18
"""An answer with no more than this left is read to its end when nobody wants it any more."""


class Upload:
    """One file by its content: stored under a hidden name that holds its checksum, then renamed."""

    def __init__(self, source: BinaryIO, path: str, mode: int) -> None:
        self._source = source
        self._path, self._mode = path, mode
        self._sha256 = hashlib.file_digest(source, "sha256").hexdigest()  # type: ignore[arg-type]
        self._size = source.seek(0, io.SEEK_END)

    def run(self, start: Start) -> bool:
        """Send the file to the box, whole; return False when it was damaged on the way.

        Raises BrokenError, after which it may be run again, and ProviderError.
        """
        words = (self._path, str(self._size), self._sha256, f"{self._mode:o}")
        session = start(*script("store"), *words)
        try:
            self._send(session)
            # All bytes are sent: what is left is the checksum of the whole file on a slow disk.
            exit_code = session.wait(_SETTLE_S + self._size / _CHECKED_PER_S)
        except TimeoutError as error:
            raise BrokenError("nothing moved for too long") from error
        finally:
            session.close()
        if exit_code == _CUT_SHORT:
            raise BrokenError("the connection broke")
        if exit_code not in (0, _DAMAGED):
            raise _refused(session.errors())
        return exit_code == 0

    def _send(self, session: SshSession) -> None:
        wanted = session.line()
        if wanted.isdecimal() and len(wanted) <= _DIGITS:  # else its exit code says why
            self._source.seek(min(int(wanted) * _BLOCK, self._size))
            until = time.monotonic() + _SETTLE_S + self._size / _SLOWEST_PER_S
            while (chunk := self._source.read(_CHUNK)) and session.send(chunk):
                if time.monotonic() > until:
                    raise UnreachableError(f"takes less than {_SLOWEST_PER_S / 1e3:.0f} kB/s of {self._path}")
        session.end_input()
        session.line()  # received: a line that went silent is noticed before the long wait for the checksum


def _refused(said: str) -> ProviderError:
    if "No space left" in said or "quota exceeded" in said:
        return ProviderError("no space left on the machine's disk", hint="ask for more: resources.disk_gb")
    return ProviderError(f"the machine did not accept the file: {said.strip()[-200:]}")


class Download:
    """The command and the answer that it is giving."""

    def __init__(self, start: Callable[..., SshSession]) -> None:
        """`start` begins a command on the box."""
        self._start = start
        self._session: SshSession | None = None
        self._path, self._at, self._left = "", 0, 0

    def read(self, path: str, offset: int, limit: int) -> bytes:
        """Read up to `limit` bytes from `offset`. Raises BrokenError, after which it may be read again."""
        try:
            return self._read(path, offset, limit)
        except TimeoutError as error:
            raise BrokenError("nothing moved for too long") from error
        except BoxError:
            self.close()  # what it sends next may still belong to this answer
            raise

    def close(self) -> None:
        """End the command; it has ended, or soon will."""
        if self._session is not None:
            self._session.close()
        self._session, self._path, self._left = None, "", 0

    def _read(self, path: str, offset: int, limit: int) -> bytes:
        in_order = (path, offset) == (self._path, self._at)
        if not (in_order and self._left):
            self._ask(path, offset, max(limit, _AHEAD) if in_order else limit)
        return self._take(min(limit, self._left))

    def _ask(self, path: str, offset: int, limit: int) -> None:
        """The answer to this request comes next."""
        if self._left > _SKIPPED:
            self.close()
        self._take(self._left)
        if self._left:
            self.close()  # it comes too slowly to be waited for
        if self._session is None:
            self._session = self._start(*script("fetch"))
        self._session.send(os.fsencode(f"{path}\0{offset}\0{limit}\0"))
        said = self._session.line()
        if not said:
            raise BrokenError("the connection broke")
        if not said.isdecimal():
            raise BoxError(f"the machine cannot read {path}: it {said}")
        if len(said) > _SIZE_DIGITS or int(said) > limit:
            raise BoxError(f"the machine sends more of {path} than it was asked for")
        self._path, self._at, self._left = path, offset, int(said)

    def _take(self, size: int) -> bytes:
        if self._session is None or size == 0:
            return b""
        content = self._session.read(size)
        if not content:
            raise BrokenError("the connection broke")
        self._at += len(content)
        self._left -= len(content)
        return content
