"""growth(): what came to a file on a box that somebody appends to, and whether it is still the same file."""

from __future__ import annotations

from dataclasses import dataclass

from launcher.ports import Remote

OVERLAP = 256
"""Bytes that are read again, to see that what follows belongs to what is held."""


@dataclass(frozen=True, kw_only=True)
class Growth:
    """What one look at a growing file found."""

    new: bytes
    """What follows the bytes that are held; nothing when the file is another one."""
    replaced: bool
    """The file on the box does not begin with what is held: it was cut, or begun anew."""


def growth(remote: Remote, path: str, *, held: int, last: bytes, limit: int) -> Growth:
    """What follows the first `held` bytes, whose end is `last` (up to OVERLAP bytes); at most `limit` of it.

    A file that is not there has not grown: what became of the box is for others to say.
    """
    seen = _read(remote, path, held - len(last), len(last) + limit)
    if seen.startswith(last):
        return Growth(new=seen[len(last) :], replaced=False)
    return Growth(new=b"", replaced=bool(seen or remote.read(path, limit=1)))


def _read(remote: Remote, path: str, offset: int, limit: int) -> bytes:
    content = bytearray()
    while len(content) < limit:
        chunk = remote.read(path, offset=offset + len(content), limit=min(1 << 20, limit - len(content)))
        if not chunk:
            break
        content += chunk
    return bytes(content)
