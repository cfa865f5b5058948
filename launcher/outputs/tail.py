"""Copies of a box's growing files, its log and its metrics, and a search in them."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
from contextlib import suppress
from io import FileIO
from pathlib import Path

from vastrun.contract import layout
from vastrun.launcher.core.errors import BoxError, SliceOverError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import LINE_CHARACTERS, LOG_BYTES, LOGS, METRICS_SLICE_BYTES
from vastrun.launcher.outputs.disk import need_space, write, write_file
from vastrun.launcher.outputs.folder import CHUNK, OVERLAP, place_of
from vastrun.launcher.ports import Remote

MAX_LOG_CHUNK_BYTES = 2 << 20
"""Bytes of log in memory at once."""
_MAX_METRICS_BYTES = caps.SMALL_FILES[layout.METRICS]
LARGE_BYTES = 32 << 20
"""From here on, reading all lines takes more than a second."""


def download_log(out: Path, remote: Remote, *, whole_lines: bool) -> bytes:
    """Append what is new of the box's log to the copy here; return it."""
    place = place_of(out, layout.LOG)
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("ab+", buffering=0) as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # another process may show the same log
        new = _new_log_bytes(remote, log, os.fstat(log.fileno()).st_size)
        end = new.rfind(b"\n") + 1
        if whole_lines and (end or len(new) < LINE_CHARACTERS):
            new = new[:end]
        if new:
            need_space(out, len(new))
            write(log.fileno(), new)
            os.fsync(log.fileno())
    return new


def _new_log_bytes(remote: Remote, copy: FileIO, held: int) -> bytes:
    """Return what follows the `held` bytes of the local copy. The copy of a replaced log is kept."""
    last = os.pread(copy.fileno(), OVERLAP, max(0, held - OVERLAP))
    new = log_tail(remote, layout.LOG, held=held, last=last, limit=MAX_LOG_CHUNK_BYTES)
    log = Path(copy.name)
    if new is None:
        unused = next((place for place in _set_aside(log) if not place.exists()), None)
        if unused is None:
            raise BoxError(f"the log was restarted more than {LOGS} times")
        shutil.copyfile(log, unused)
        copy.truncate(0)
        return _new_log_bytes(remote, copy, 0)
    aside = sum(place.stat().st_size for place in _set_aside(log) if place.is_file())
    if new and held + len(new) + aside > LOG_BYTES:
        raise BoxError(f"the log is larger than {LOG_BYTES >> 30} GB")
    return new


def _set_aside(log: Path) -> list[Path]:
    return [log.with_name(f"{log.name}.{number}") for number in range(1, LOGS + 1)]


def log_tail(remote: Remote, path: str, *, held: int, last: bytes, limit: int) -> bytes | None:
    """Read what follows the first `held` bytes, whose end is `last` (up to OVERLAP bytes); at most `limit`.

    None: the file on the box does not begin with what is held: it was cut, or started again.
    A missing file has not grown: the end of the box is detected elsewhere.
    """
    seen = _read(remote, path, held - len(last), len(last), len(last) + limit)
    if seen.startswith(last):
        return seen[len(last) :]
    return None if seen or remote.read(path, limit=1) else b""


def _read(remote: Remote, path: str, offset: int, min_bytes: int, limit: int) -> bytes:
    """Read at least `min_bytes`, where available; a chunk that is not full is likely the last."""
    content = bytearray()
    while len(content) < limit:
        size = min(1 << 20, limit - len(content))
        try:
            chunk = remote.read(path, offset=offset + len(content), limit=size)
        except SliceOverError:
            if len(content) <= min_bytes:
                raise
            break
        content += chunk
        if not chunk or (len(chunk) < size and len(content) >= min_bytes):
            break
    return bytes(content)


def grow_metrics(out: Path, remote: Remote) -> int:
    """Append whole lines that are new, from one read of the box or two; return how many bytes.

    A training that is started again on its machine cuts the file back to its checkpoint: then the copy
    starts again, too. Raises BoxError when the box gives more than metrics take.
    """
    place = place_of(out, layout.METRICS)
    held = place.stat().st_size if place.is_file() else 0
    last = b""
    if held:
        with place.open("rb") as copy:
            copy.seek(max(0, held - OVERLAP))
            last = copy.read(OVERLAP)
    new = log_tail(remote, layout.METRICS, held=held, last=last, limit=METRICS_SLICE_BYTES)
    if new is not None:
        lines = _whole_lines(new)
        if held + len(lines) > _MAX_METRICS_BYTES:
            raise BoxError(f"the metrics are larger than {_MAX_METRICS_BYTES >> 20} MB")
        if lines:
            need_space(place.parent, len(lines))
            with place.open("ab", buffering=0) as copy:
                write(copy.fileno(), lines)
        return len(lines)
    content = _whole_lines(remote.read(layout.METRICS, limit=METRICS_SLICE_BYTES))
    need_space(out, len(content))
    write_file(place, content)  # at once: a reader finds the old ones or the new ones
    return len(content)


def _whole_lines(new: bytes) -> bytes:
    """The last line may still be written. Raises BoxError for one that has no end."""
    whole = new[: new.rfind(b"\n") + 1]
    if not whole and len(new) >= METRICS_SLICE_BYTES:
        raise BoxError(f"a line of the metrics is longer than {METRICS_SLICE_BYTES} bytes")
    return whole


def text_from_last(log: Path, mark: str) -> str:
    """Return the log from the last line with `mark` on, a chunk at most; empty where no line has it."""
    with suppress(OSError, ValueError), log.open("rb") as file:
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            at = content.rfind(mark.encode())
            begin = content.rfind(b"\n", 0, at) + 1
        if at >= 0:
            file.seek(begin)
            return file.read(CHUNK).decode("utf-8", "replace")
    return ""


def is_large(log: Path) -> bool:
    """Tell whether reading all lines of the log takes long."""
    with suppress(OSError):
        return log.stat().st_size >= LARGE_BYTES
    return False
