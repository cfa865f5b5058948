"""Shared cache: reuses data files that an earlier run made on this machine.

On a machine with slots for several runs, VASTRUN_SHARED_DATA names the cache folder. A file is stored under
the hash of how it was made, next to its checksum. Each run copies it and compares the checksum of the copy: a
program that changes its own files, or those in the cache, changes no other run's data.
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
_MIN_FREE_FACTOR = 4
"""A file is stored only when this multiple of its size is free: other runs need space, too."""


def fetch_or_make(path: Path, attrs: Mapping[str, Attribute], make: Callable[[], None]) -> bool:
    """Copy `path` from the cache, or make it and store it there. Returns True when it came from the cache.

    Raises the errors of `make`.
    """
    folder = os.environ.get("VASTRUN_SHARED_DATA", "")
    if not folder:
        make()
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    shared = SharedFile(Path(folder), path.name, attrs)
    with shared.lock():
        if shared.fetch(path):
            return True
        make()
        shared.store(path)
    return False


class SharedFile:
    """Place of one file in the shared cache."""

    def __init__(self, folder: Path, name: str, attrs: Mapping[str, Attribute]) -> None:
        """`attrs`: how the file is made; other attributes are another file."""
        recipe = json.dumps([name, dict(attrs)], sort_keys=True)
        self._place = folder / hashlib.sha256(recipe.encode()).hexdigest()
        self._sum = self._place.with_suffix(".sha256")
        self._attrs = attrs

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from making the same file; one that waited may fetch it."""
        self._place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(self._place.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def fetch(self, path: Path) -> bool:
        """Copy the file to `path`; False when it is missing. A file with a wrong checksum is removed."""
        part = path.with_name(f".{path.name}.part")
        try:
            expected = self._sum.read_text(encoding="ascii").strip()
            if _copy_and_hash(self._place, part) == expected and attributes(part) == dict(self._attrs):
                part.replace(path)
                return True
        except FileNotFoundError:
            return False
        except (OSError, ValueError, DataError):  # unreadable, or no space for the copy: make it instead
            pass
        finally:
            part.unlink(missing_ok=True)
        self._remove()
        return False

    def store(self, path: Path) -> None:
        """Store a copy of `path` for other runs, if there is space; a failure is ignored."""
        part = self._place.with_suffix(f".{os.getpid()}.part")
        with suppress(OSError):
            if shutil.disk_usage(self._place.parent).free < _MIN_FREE_FACTOR * path.stat().st_size:
                return
            total = _copy_and_hash(path, part)
            part.chmod(0o400)
            part.replace(self._place)
            # Last: a file without a checksum does not count.
            part.write_text(f"{total}\n", encoding="ascii")
            part.replace(self._sum)
        part.unlink(missing_ok=True)

    def _remove(self) -> None:
        for path in (self._sum, self._place):
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _copy_and_hash(source: Path, target: Path) -> str:
    """Copy the file and return the SHA-256 of the bytes that were written."""
    total = hashlib.sha256()
    with source.open("rb") as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            total.update(chunk)
            writer.write(chunk)
    return total.hexdigest()
