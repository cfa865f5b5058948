"""Downloads: partial files named by checksum, so that an interrupted transfer continues."""

from __future__ import annotations

import os
from pathlib import Path

from vastrun.contract.outcome import FileChecksum
from vastrun.launcher.core.errors import BoxError
from vastrun.launcher.gate import caps
from vastrun.launcher.gate.caps import ExchangeBudget
from vastrun.launcher.gate.manifest import INCOMING
from vastrun.launcher.outputs.disk import write
from vastrun.launcher.ports import Remote

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
