"""The shelf: where a run's outputs come to lie on this computer, each checked against its checksum."""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from launcher.errors import StorageError
from launcher.growth import OVERLAP, growth
from launcher.model import Collected, Run
from launcher.ports import Remote
from trainer import layout
from trainer.outcome import FileSum
from trainer.records import read_as

CHUNK = 1 << 20
PUMP_LIMIT = 8 << 20
"""Bytes of log in memory at once."""
SMALL_LIMIT = 64 << 20
"""Bytes of a file that comes without a checksum; what lies beyond is not taken."""
FREE_BYTES = 50 * 10**6
"""Left free on the disk, for the ledger and for the user."""

_INCOMING = ".incoming"
"""Files on their way, each named by its checksum, so that a collection that was cut off goes on."""
_UNSUMMED = (
    layout.MANIFEST,
    layout.LEASE_LOG,
    layout.EXIT,
    layout.OUTCOME,
    layout.STEPS,
    layout.STATUS,
    layout.FINAL,
    layout.METRICS,
)
"""Taken as they are when the manifest does not name them; a box that died early has nothing else."""


class FolderShelf:
    """A folder a run. `Shelf` says what each verb promises."""

    def check(self, run: Run) -> None:
        out = Path(run.out_dir)
        with _storing(out):
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out) as file:
                file.write(b"\0")
            if not any(
                out.iterdir()
            ):  # ours alone: kept out of the user's commits, and of what the next run ships
                (out / ".gitignore").write_text("*\n")
        _need_space(out, 0)

    def pump(self, run: Run, remote: Remote) -> str:
        out = Path(run.out_dir)
        with _storing(out):
            return _pump(out, remote, whole_lines=True).decode(errors="replace")

    def collect(self, run: Run, remote: Remote) -> Collected:
        out = Path(run.out_dir)
        with _storing(out):
            while _pump(out, remote, whole_lines=False):
                pass
            return _collect(out, remote)


def _collect(out: Path, remote: Remote) -> Collected:
    files, refused = _parsed(_whole(remote, layout.MANIFEST))
    wanted = _by_place(out, files)
    others = [path for path in _UNSUMMED if _place(out, path) not in wanted]
    unsummed = [_place(out, path) for path in others if _stored(_place(out, path), _whole(remote, path))]
    damaged = _bring(out, wanted, remote)
    home = [place for place in {*wanted, *unsummed, _place(out, layout.LOG)} if place.is_file()]
    return Collected(
        outcome_json=_text(out, layout.OUTCOME),
        steps_jsonl=_text(out, layout.STEPS),
        exit_code=_exit_code(_text(out, layout.EXIT)),
        files=len(home),
        bytes=sum(place.stat().st_size for place in home),
        damaged=(*damaged, *refused),
    )


def _bring(out: Path, wanted: Mapping[Path, FileSum], remote: Remote) -> list[str]:
    """Everything wanted that is not here yet; the paths of what could not be had whole."""
    missing = {place: file for place, file in wanted.items() if not _is_home(place, file)}
    if missing:
        _need_space(out, sum(file.size for file in missing.values()) - _size_of(out / _INCOMING))
    damaged = [file.path for place, file in missing.items() if not _brought(out, place, file, remote)]
    with suppress(OSError):
        (out / _INCOMING).rmdir()
    return damaged


def _pump(out: Path, remote: Remote, *, whole_lines: bool) -> bytes:
    """New bytes of the log, now in the local copy too, whose size says how far an earlier pump came."""
    out.mkdir(parents=True, exist_ok=True)
    with _place(out, layout.LOG).open("ab", buffering=0) as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # another process may show the same log
        new = _grown(remote, Path(log.name), os.fstat(log.fileno()).st_size)
        end = new.rfind(b"\n") + 1
        if whole_lines and (end or len(new) < PUMP_LIMIT):
            new = new[:end]
        _write(log.fileno(), new)
        os.fsync(log.fileno())
    return new


def _grown(remote: Remote, log: Path, held: int) -> bytes:
    """What follows the `held` bytes of the local copy. The copy of another log is set aside, not lost."""
    with log.open("rb") as copy:
        copy.seek(max(0, held - OVERLAP))
        last = copy.read(OVERLAP)
    found = growth(remote, layout.LOG, held=held, last=last, limit=PUMP_LIMIT)
    if found.replaced:
        shutil.copyfile(log, _unused(log))
        os.truncate(log, 0)
        return _grown(remote, log, 0)
    return found.new


def _unused(log: Path) -> Path:
    """The first of `run.log.1`, `run.log.2`... that is not there."""
    names = (log.with_name(f"{log.name}.{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _read(remote: Remote, path: str, offset: int, limit: int) -> bytes:
    """Bytes from `offset` to the end of the file, at most `limit`."""
    chunks: list[bytes] = []
    size = 0
    while size < limit and (chunk := remote.read(path, offset=offset + size, limit=min(CHUNK, limit - size))):
        chunks.append(chunk)
        size += len(chunk)
    return b"".join(chunks)


def _whole(remote: Remote, path: str) -> bytes:
    return _read(remote, path, 0, SMALL_LIMIT)


def _parsed(text: bytes) -> tuple[list[FileSum], list[str]]:
    """The files of a manifest, and the paths in it that no honest box writes. Empty when there is none."""
    if not text:
        return [], []
    try:
        entries = [read_as(FileSum, entry) for entry in json.loads(text)["files"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        return [], [layout.MANIFEST]
    files = [entry for entry in entries if _is_sound(entry)]
    return files, [repr(entry.path) for entry in entries if not _is_sound(entry)]


def _is_sound(file: Any) -> bool:
    """The manifest comes from a stranger's machine: it may name any path, any size."""
    if not isinstance(file.path, str) or not isinstance(file.size, int) or not isinstance(file.sha256, str):
        return False
    parts = PurePosixPath(file.path).parts
    named = bool(parts) and parts[0] != "/" and len(parts) < 100 and all(map(_is_name, parts))
    return named and file.size >= 0 and re.fullmatch(r"[0-9a-f]{64}", file.sha256) is not None


def _is_name(part: str) -> bool:
    try:
        return part != ".." and "\0" not in part and len(os.fsencode(part)) < 256
    except UnicodeEncodeError:
        return False


def _by_place(out: Path, files: list[FileSum]) -> dict[Path, FileSum]:
    """Files by where they come to lie. Without the log: it is pumped, and grows after the manifest."""
    return {_place(out, file.path): file for file in files if file.path != layout.LOG}


def _place(out: Path, path: str) -> Path:
    """`run/x` lies at `x`, anything else at its own path."""
    parts = PurePosixPath(path).parts  # not the text: `run//etc/x` less `run/` would be absolute
    return out.joinpath(*(parts[1:] if parts[0] == layout.RUN else parts))


def _is_home(place: Path, file: FileSum) -> bool:
    return place.is_file() and place.stat().st_size == file.size and _sha256(place) == file.sha256


def _brought(out: Path, place: Path, file: FileSum, remote: Remote) -> bool:
    """The file lies at `place` and its checksum holds; tried twice."""
    part = out / _INCOMING / file.sha256
    part.parent.mkdir(exist_ok=True)
    for _ in range(2):
        _fetch(part, file, remote)
        if _is_home(part, file) and _moved(part, place, out):
            return True
        part.unlink()
    return False


def _fetch(part: Path, file: FileSum, remote: Remote) -> None:
    """Bytes of the file after those that `part` holds already."""
    with part.open("ab", buffering=0) as target:
        offset = os.fstat(target.fileno()).st_size
        while offset < file.size:
            chunk = remote.read(file.path, offset=offset, limit=min(CHUNK, file.size - offset))
            if not chunk:
                break
            _write(target.fileno(), chunk)
            offset += len(chunk)
        os.fsync(target.fileno())


def _moved(part: Path, place: Path, out: Path) -> bool:
    """False where a link leads out of the run's folder, or a file stands where a folder should be."""
    if not place.parent.resolve().is_relative_to(out.resolve()):
        return False
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.replace(place)
    except (NotADirectoryError, FileExistsError, IsADirectoryError):
        return False
    return True


def _stored(place: Path, content: bytes) -> bool:
    """The content lies at `place`. False when there is none."""
    if not content:
        return False
    part = place.with_name(f".{place.name}.part")
    with part.open("wb", buffering=0) as file:
        _write(file.fileno(), content)
        os.fsync(file.fileno())
    part.replace(place)
    return True


def _write(descriptor: int, content: bytes) -> None:
    """All of it: a nearly full disk takes a part, then refuses."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


@contextmanager
def _storing(out: Path) -> Iterator[None]:
    """Faults of this computer's disk become StorageError."""
    try:
        yield
    except OSError as error:
        hint = "free some space, or choose another folder with --out DIR"
        raise StorageError(f"cannot write to {out}: {error.strerror or error}", hint=hint) from error


def _need_space(out: Path, size: int) -> None:
    free = shutil.disk_usage(out).free
    if free < size + FREE_BYTES:
        need = (size + FREE_BYTES) / 1e6
        hint = "free some space, or choose another folder with --out DIR"
        raise StorageError(f"{out} has {free / 1e6:.0f} MB free, and {need:.0f} MB are needed", hint=hint)


def _size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir()) if folder.is_dir() else 0


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _text(out: Path, path: str) -> str | None:
    place = _place(out, path)
    return place.read_text(encoding="utf-8", errors="replace") if place.is_file() else None


def _exit_code(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None
