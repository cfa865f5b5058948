"""Data cache: keeps files on a held machine, so that its next run copies what else it downloads or makes.

Standard library only. VASTRUN_SHARED_DATA names the folder, which all slots of the machine share. An entry is
a folder with the file, its digest, and a lock that is held until the file is there. Each run gets a copy
whose digest is compared: a program that changes its own data changes no other run's.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from vastrun.contract.checkpoint_folder import sha256_of
from vastrun.contract.records import write_atomically

FREE_BYTES = 50 * 10**6
"""Bytes that stay free on the disk, for the log."""
_CONTENT, _DIGEST, _PART, _LOCK = "content", "digest", "part", "lock"
_MIN_FREE_FACTOR = 4
"""A file that was made is kept only when this multiple of its size is free: other runs need space, too."""


class DataCache:
    """The cache of a held machine."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the one that all slots share."""
        self._folder = folder / "files"

    @contextmanager
    def entry(self, key: str, name: str, checksum: tuple[str, str] | None = None) -> Iterator[CachedFile]:
        """Lock the entry of a file: of several runs that need it, one prepares it. Raises OSError.

        `key`: all that the content depends on; `name`: its name in the log; `checksum`: algorithm, digest.
        """
        place = self._place(key)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                print(f"{name}: waiting for another run on this machine, which prepares it", flush=True)
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield CachedFile(place, checksum)
        finally:
            os.close(handle)

    def has(self, key: str) -> bool:
        """Tell whether a complete file is there, without its lock."""
        return (self._place(key) / _DIGEST).exists()

    def _place(self, key: str) -> Path:
        return self._folder / hashlib.sha256(key.encode()).hexdigest()

    def make_room(self, needed: int) -> bool:
        """Remove entries, the least recently used first, until `needed` bytes are free. Tell if they are."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for place in sorted(self._folder.iterdir(), key=_used_at):
            if has_room(self._folder, needed):
                return True
            _evict(place)
        return has_room(self._folder, needed)


class CachedFile:
    """The entry of one file, while it is locked."""

    def __init__(self, place: Path, checksum: tuple[str, str] | None) -> None:
        self._place, self._checksum = place, checksum
        self.part = place / _PART
        """Path of an incomplete download, which the next run continues."""

    @property
    def exists(self) -> bool:
        """Tell whether the file is complete."""
        return (self._place / _DIGEST).exists()

    @property
    def downloaded(self) -> int:
        """Return the bytes of an incomplete download."""
        try:
            return self.part.stat().st_size
        except OSError:
            return 0

    def keep(self, digest: str) -> None:
        """Turn the complete download into an entry."""
        self.part.chmod(0o400)
        self.part.replace(self._place / _CONTENT)
        # Last: a file without a digest does not count.
        write_atomically(self._place / _DIGEST, f"{digest}\n", durable=False)

    def keep_copy(self, file: Path) -> None:
        """Turn a copy of a file that was made into an entry, if there is space; a failure is ignored."""
        with suppress(OSError):
            if has_room(self._place, _MIN_FREE_FACTOR * file.stat().st_size):
                shutil.copyfile(file, self.part)
                with file.open("rb") as made:
                    self.keep(sha256_of(made))
        self.part.unlink(missing_ok=True)

    def copy(self, target: Path) -> bool:
        """Copy the file; False if it is missing or damaged, which removes both. Raises OSError."""
        algorithm, digest = self._checksum or ("sha256", self._digest())
        total = new_hash(algorithm)
        with target.open("wb") as sink:
            for chunk in self._chunks():
                total.update(chunk)
                sink.write(chunk)
        if total.hexdigest() == digest == self._digest():
            os.utime(self._place / _DIGEST)
            return True
        for name in (_DIGEST, _CONTENT):
            (self._place / name).unlink(missing_ok=True)
        target.unlink()
        return False

    def _digest(self) -> str:
        try:
            return (self._place / _DIGEST).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return ""

    def _chunks(self) -> Iterator[bytes]:
        """Yield the content, up to where it cannot be read."""
        with suppress(OSError), (self._place / _CONTENT).open("rb") as source:
            while chunk := source.read(1 << 20):
                yield chunk


def has_room(folder: Path, needed: int) -> bool:
    """Return whether the disk of a folder has these bytes free, besides those for the log."""
    return shutil.disk_usage(folder).free >= needed + FREE_BYTES


def new_hash(algorithm: str) -> Any:
    """Return a hash object; MD5 also where a policy forbids it for security."""
    return hashlib.new(algorithm, usedforsecurity=False)


def megabytes(size: float) -> str:
    """Write bytes as MB or GB."""
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _used_at(place: Path) -> float:
    """Return when an entry was last copied, in epoch seconds; 0 if it is incomplete."""
    try:
        return (place / _DIGEST).stat().st_mtime
    except OSError:
        return 0.0


def _evict(place: Path) -> None:
    """Remove an entry that no run is using. Its lock stays: another run may be waiting for it."""
    with suppress(OSError):
        handle = os.open(place / _LOCK, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            sizes = [(place / name).stat().st_size for name in (_CONTENT, _PART) if (place / name).exists()]
            for name in (_DIGEST, _CONTENT, _PART):
                (place / name).unlink(missing_ok=True)
            if sizes:
                print(f"removed {megabytes(sum(sizes))} from this machine's cache to make room", flush=True)
        finally:
            os.close(handle)
