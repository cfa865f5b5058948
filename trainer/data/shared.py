"""Shared data: files that an earlier run made on this machine, taken instead of made again.

Where a machine has slots for several runs, VASTRUN_SHARED_DATA names a folder of it. A file lies there below
the hash of how it was made, with its sum beside it. Each run has a copy of its own, whose sum is compared
while it is copied: what a run's program does to its files, or to those there, changes no other run's data.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from vastrun.contract.errors import DataError
from vastrun.trainer.data.pdebench import Attribute, attributes

_CHUNK = 1 << 20
_ROOM = 4
"""A file is kept for others only where so many times its size is free: theirs come, too."""


def taken_or_made(path: Path, attrs: Mapping[str, Attribute], make: Callable[[], None]) -> bool:
    """Have `path` there, and kept for others where they may need it. Return whether it was taken.

    Raises what `make` raises.
    """
    folder = os.environ.get("VASTRUN_SHARED_DATA", "")
    if not folder:
        make()
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    there = SharedFile(Path(folder), path.name, attrs)
    with there.making():
        if there.take(path):
            return True
        make()
        there.give(path)
    return False


class SharedFile:
    """The place of one file among the shared ones."""

    def __init__(self, folder: Path, name: str, attrs: Mapping[str, Attribute]) -> None:
        """`attrs`: how it is made; another way is another file."""
        recipe = json.dumps([name, dict(attrs)], sort_keys=True)
        self._place = folder / hashlib.sha256(recipe.encode()).hexdigest()
        self._sum = self._place.with_suffix(".sha256")
        self._attrs = attrs

    @contextmanager
    def making(self) -> Iterator[None]:
        """Keep others from making the same file meanwhile: who waits may take it."""
        self._place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def take(self, path: Path) -> bool:
        """Copy it to `path`; False where it is not there. One that is not what its sum says is removed."""
        part = path.with_name(f".{path.name}.part")
        try:
            expected = self._sum.read_text(encoding="ascii").strip()
            if _copied(self._place, part) == expected and attributes(part) == dict(self._attrs):
                part.replace(path)
                return True
        except FileNotFoundError:
            return False
        except (OSError, ValueError, DataError):  # it cannot be read, or there is no room for it: it is made
            pass
        finally:
            part.unlink(missing_ok=True)
        self._forget()
        return False

    def give(self, path: Path) -> None:
        """Keep a copy of `path` for others, where there is room. To have it is no condition of anything."""
        part = self._place.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            if shutil.disk_usage(self._place.parent).free < _ROOM * path.stat().st_size:
                return
            total = _copied(path, part)
            part.chmod(0o400)
            part.replace(self._place)
            # Last: a file without a sum is none.
            part.write_text(f"{total}\n", encoding="ascii")
            part.replace(self._sum)
        part.unlink(missing_ok=True)

    def _forget(self) -> None:
        for path in (self._sum, self._place):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _copied(source: Path, target: Path) -> str:
    """Copy the file and return the SHA-256 of the bytes that were written."""
    total = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            total.update(chunk)
            writer.write(chunk)
    return total.hexdigest()
