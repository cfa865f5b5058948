"""Storing: whole files and parts of them, in the run's folder, with one error for a disk that refuses."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vastrun.contract.outcome import FileChecksum
from vastrun.launcher.core.errors import BoxError, NoRoomError, StorageError, UsageError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.manifest import INCOMING, OWNER
from vastrun.launcher.outputs.folder import START_SCRIPT, TRANSCRIPT
from vastrun.launcher.ports import Remote

_INVALID_PATH_ERRNOS = frozenset(
    {
        *(errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY),  # a file where a folder should be
        *(errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ),  # a name that this disk does not take
    }
)
IGNORE = ".gitignore"
Check = Callable[[], None]
"""Raises what ends an exchange."""
FREE_BYTES = 50 * 10**6
"""Left free on the disk, for the ledger and for the user."""


@contextmanager
def disk_errors(out: Path | str) -> Iterator[Path]:
    """Yield the folder, and turn faults of this computer's disk within into StorageError."""
    try:
        yield Path(out)
    except OSError as error:
        hint = "free some space, or choose another folder with --out DIR"
        raise StorageError(f"cannot write to {out}: {error.strerror or error}", hint=hint) from error


def check_unused(out: Path, run_id: str) -> None:
    """Raise UsageError when the folder holds more than what this run has put there.

    What a run left that brought nothing home does not count.
    """
    mark = out / OWNER
    owner = mark.read_text(encoding="utf-8", errors="replace").strip() if mark.is_file() else ""
    own_files = {*_marks(out), *filter(_is_empty, out.glob("node-*"))} if owner else set()
    if owner == run_id or not out.is_dir() or own_files.issuperset(out.iterdir()):
        return
    what = f"holds the outputs of {owner}" if owner else "is not empty"
    raise UsageError(f"{out} {what}", hint="choose a new or an empty folder with --out DIR")


def _marks(out: Path) -> set[Path]:
    """Return the files that a run creates in its folder before a download."""
    return {out / OWNER, out / IGNORE, out / TRANSCRIPT, out / START_SCRIPT}


def _is_empty(out: Path) -> bool:
    """Tell whether nothing was downloaded to the folder of another node."""
    return out.is_dir() and not out.is_symlink() and _marks(out).issuperset(out.iterdir())


def claim(out: Path, run_id: str) -> None:
    """Make the folder the run's own: its files are written and removed there from now on."""
    write_file(out / OWNER, f"{run_id}\n".encode())
    ignore_in_git(out)


def ignore_in_git(out: Path) -> None:
    """Keep all that lies in the folder out of the user's commits, and of what the next run ships."""
    write_file(out / IGNORE, b"*\n")


def need_space(out: Path, size: int) -> None:
    """Raise NoRoomError when the disk has no room for `size` more bytes."""
    free = shutil.disk_usage(out).free
    if free < size + FREE_BYTES:
        need = (size + FREE_BYTES) / 1e6
        hint = "free some space, or choose another folder with --out DIR"
        raise NoRoomError(f"{out} has {free / 1e6:.0f} MB free, and {need:.0f} MB are needed", hint=hint)


def is_complete(place: Path, file: FileChecksum, check: Check) -> bool:
    """Tell whether the file lies there, whole. `check` may end the reading of a large one."""
    return place.is_file() and place.stat().st_size == file.size and _sha256(place, check) == file.sha256


def move_into(part: Path, place: Path, out: Path) -> bool:
    """Move it; return False where a link leads out of the run's folder, or the disk knows no such place."""
    if not place.parent.resolve().is_relative_to(out.resolve()):
        return False
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        part.replace(place)
    except OSError as error:
        if error.errno not in _INVALID_PATH_ERRNOS:
            raise
        return False
    return True


def link_into(twin: Path, part: Path, place: Path, out: Path) -> bool:
    """Give a file that is here a second name; False where the disk cannot, or the file is gone."""
    part.parent.mkdir(parents=True, exist_ok=True)
    part.unlink(missing_ok=True)
    try:
        os.link(twin, part, follow_symlinks=False)
    except OSError:
        return False
    return move_into(part, place, out)


def write_file(place: Path, content: bytes) -> None:
    """Write the content to `place`, if there is any."""
    if not content:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.part")
    with part.open("wb", buffering=0) as file:
        write(file.fileno(), content)
        os.fsync(file.fileno())
    part.replace(place)


def write(descriptor: int, content: bytes) -> None:
    """Write all of it: a nearly full disk takes a part, then refuses."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _sha256(path: Path, check: Check) -> str:
    """Checksum a file, in parts: to read a large one takes minutes, in which the user may end the run."""
    digest = hashlib.sha256()
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(16 << 20):
            digest.update(chunk)
            check()
    return digest.hexdigest()


CHUNK = 1 << 20


def part_path(out: Path, file: FileChecksum, incoming: str = INCOMING) -> Path:
    """Return where the part of a file lies that is on its way; `incoming`: the folder of such parts."""
    return out / incoming / file.sha256


def bytes_held(part: Path) -> int:
    """Count the bytes that are here."""
    return part.stat().st_size if part.is_file() else 0


def extend_part(
    part: Path, file: FileChecksum, remote: Remote, budget: ExchangeBudget, *, limit: int, chunk: int = CHUNK
) -> bool:
    """Add up to `limit` bytes that follow those which `part` holds already; fewer once the budget is late.

    Return False when it ended for that: more may follow.
    """
    budget.check()  # an empty file causes no exchange that would check it
    part.parent.mkdir(parents=True, exist_ok=True)
    if file.size == 0:
        part.touch()  # there is nothing to wait for the disk for
        return True
    with part.open("ab", buffering=0) as target:
        offset = os.fstat(target.fileno()).st_size
        end = min(file.size, offset + limit)
        is_late = False
        while offset < end and not is_late:
            new = remote.read(file.path, offset=offset, limit=min(chunk, end - offset))
            if not new:
                break
            budget.spend(size=len(new))
            write(target.fileno(), new)
            offset += len(new)
            is_late = budget.is_late
        os.fsync(target.fileno())
    return not is_late


def fetch_whole(place: Path, path: str, remote: Remote, budget: ExchangeBudget) -> None:
    """Download a file that no manifest names to its place, whole or not at all; nothing where there is none.

    It is never in memory as a whole. Raises BoxError when it is larger than `caps` allows to that file.
    """
    max_bytes, size = caps.SMALL_FILES[path], 0
    new = remote.read(path, limit=min(CHUNK, max_bytes + 1))
    if not new:
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f".{place.name}.part")
    try:
        with part.open("wb", buffering=0) as target:
            while new:
                size += len(new)
                budget.spend(size=len(new))
                if size > max_bytes:
                    raise BoxError(f"{path} is larger than {max_bytes} bytes")
                write(target.fileno(), new)
                new = remote.read(path, offset=size, limit=min(CHUNK, max_bytes + 1 - size))
            os.fsync(target.fileno())
        part.replace(place)
    finally:
        part.unlink(missing_ok=True)
