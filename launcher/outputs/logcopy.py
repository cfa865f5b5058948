"""The copy of a box's log: its size says how far an earlier pump came."""

from __future__ import annotations

import fcntl
import os
import shutil
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from launcher.core.errors import BoxError
from launcher.gate.caps import LINE_CHARACTERS, LOG_BYTES, LOGS
from launcher.outputs.folder import place_of
from launcher.outputs.storing import need_space, write
from launcher.ports import Remote
from trainer.contract import layout

LIMIT = 2 << 20
"""Bytes of log in memory at once."""


def pump(out: Path, remote: Remote, *, whole_lines: bool) -> bytes:
    """Append what is new of the box's log to the copy here; return it."""
    out.mkdir(parents=True, exist_ok=True)
    with place_of(out, layout.LOG).open("ab+", buffering=0) as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # another process may show the same log
        new = _grown(remote, log, os.fstat(log.fileno()).st_size)
        end = new.rfind(b"\n") + 1
        if whole_lines and (end or len(new) < LINE_CHARACTERS):
            new = new[:end]
        if new:
            need_space(out, len(new))
            write(log.fileno(), new)
            os.fsync(log.fileno())
    return new


def _grown(remote: Remote, copy: FileIO, held: int) -> bytes:
    """What follows the `held` bytes of the local copy. The copy of another log is set aside, not lost."""
    last = os.pread(copy.fileno(), OVERLAP, max(0, held - OVERLAP))
    found = log_tail(remote, layout.LOG, held=held, last=last, limit=LIMIT)
    log = Path(copy.name)
    if found.replaced:
        shutil.copyfile(log, _unused(log))
        copy.truncate(0)
        return _grown(remote, copy, 0)
    if found.new and held + len(found.new) + _set_aside_bytes(log) > LOG_BYTES:
        raise BoxError(f"the log is larger than {LOG_BYTES >> 30} GB")
    return found.new


def _unused(log: Path) -> Path:
    """The first of `log.txt.1`, `log.txt.2`... that is not there. Raises BoxError when all are."""
    for place in _set_aside(log):
        if not place.exists():
            return place
    raise BoxError(f"the log was begun anew more than {LOGS} times")


def _set_aside(log: Path) -> list[Path]:
    return [log.with_name(f"{log.name}.{number}") for number in range(1, LOGS + 1)]


def _set_aside_bytes(log: Path) -> int:
    return sum(place.stat().st_size for place in _set_aside(log) if place.is_file())


OVERLAP = 256
"""Bytes that are read again, to see that what follows belongs to what is held."""


@dataclass(frozen=True, kw_only=True)
class LogTail:
    """What one look at a growing file found."""

    new: bytes
    """What follows the bytes that are held; nothing when the file is another one."""
    replaced: bool
    """The file on the box does not begin with what is held: it was cut, or begun anew."""


def log_tail(remote: Remote, path: str, *, held: int, last: bytes, limit: int) -> LogTail:
    """Read what follows the first `held` bytes, whose end is `last` (up to OVERLAP bytes); at most `limit`.

    A file that is not there has not grown: what became of the box is for others to say.
    """
    seen = _read(remote, path, held - len(last), len(last), len(last) + limit)
    if seen.startswith(last):
        return LogTail(new=seen[len(last) :], replaced=False)
    return LogTail(new=b"", replaced=bool(seen or remote.read(path, limit=1)))


def _read(remote: Remote, path: str, offset: int, least: int, limit: int) -> bytes:
    """At least `least` bytes, where there are so many; a chunk that is not full is likely to be the last."""
    content = bytearray()
    while len(content) < limit:
        size = min(1 << 20, limit - len(content))
        chunk = remote.read(path, offset=offset + len(content), limit=size)
        content += chunk
        if not chunk or (len(chunk) < size and len(content) >= least):
            break
    return bytes(content)
