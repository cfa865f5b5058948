"""Download: parts of files of a box, all through one command there, so that each costs one round trip."""

from __future__ import annotations

import os
from collections.abc import Callable

from launcher.core.errors import BoxError
from launcher.ssh.connection import script
from launcher.ssh.session import BrokenError, SshSession

_AHEAD = 64 << 20
"""Bytes asked for at once by who reads a file in order."""
_DIGITS = 18
_SKIPPED = 1 << 18
"""An answer with no more than this left is read to its end when nobody wants it any more."""


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
        if len(said) > _DIGITS or int(said) > limit:
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
