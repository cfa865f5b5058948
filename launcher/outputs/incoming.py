"""Files on their way, each named by its checksum, so that a transfer that was cut off goes on."""

from __future__ import annotations

import os
from pathlib import Path

from launcher.gate.budget import Budget
from launcher.gate.manifest import INCOMING
from launcher.outputs.storing import write
from launcher.ports import Remote
from trainer.contract.outcome import FileSum

CHUNK = 1 << 20


def part_of(out: Path, file: FileSum) -> Path:
    """Return where the part of a file lies that is on its way."""
    return out / INCOMING / file.sha256


def held(part: Path) -> int:
    """Count the bytes that are here."""
    return part.stat().st_size if part.is_file() else 0


def grow(
    part: Path, file: FileSum, remote: Remote, budget: Budget, *, limit: int, chunk: int = CHUNK
) -> None:
    """Add up to `limit` bytes that follow those which `part` holds already."""
    budget.check()  # an empty file asks the machine nothing, so that nobody else would
    part.parent.mkdir(parents=True, exist_ok=True)
    if file.size == 0:
        part.touch()  # there is nothing to wait for the disk for
        return
    with part.open("ab", buffering=0) as target:
        offset = os.fstat(target.fileno()).st_size
        end = min(file.size, offset + limit)
        while offset < end:
            new = remote.read(file.path, offset=offset, limit=min(chunk, end - offset))
            if not new:
                break
            budget.spend(size=len(new))
            write(target.fileno(), new)
            offset += len(new)
        os.fsync(target.fileno())
