"""Data cache: keeps downloaded files on a held machine, so that its next run copies instead of downloading.

Standard library only. VASTRUN_SHARED_DATA names the folder, which all slots of the machine share. An entry is
a folder with the file, its digest, and a lock that is held while the file is downloaded. Each run gets a copy
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
from typing import Any, BinaryIO

from vastrun.contract.data_files import JobDataFile
from vastrun.contract.records import write_atomically
from vastrun.trainer.transfer.download import FREE_BYTES, megabytes, new_hash, say
from vastrun.trainer.transfer.download_error import disk_error

_FOLDER = "files"
_CONTENT, _DIGEST, _PART, _LOCK = "content", "digest", "part", "lock"
_CHUNK = 1 << 20


class DataCache:
    """The cache of a held machine."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the one that all slots share."""
        self._folder = folder / _FOLDER

    @contextmanager
    def entry(self, file: JobDataFile) -> Iterator[CachedFile]:
        """Lock the entry of a file: of several runs that need it, one downloads it. Raises OSError."""
        place = self._folder / _key(file)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(place / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"{file.path}: waiting for another run on this machine, which downloads it")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield CachedFile(place, file)
        finally:
            os.close(handle)

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

    def __init__(self, place: Path, file: JobDataFile) -> None:
        self._place, self._file = place, file
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
        write_atomically(self._place / _DIGEST, f"{digest}\n")

    def copy(self, target: Path) -> bool:
        """Copy the file; False if it is damaged, which removes it. Raises DataFileError for a full disk."""
        checksum = self._file.checksum
        total = new_hash("sha256" if checksum is None else checksum[0])
        try:
            expected = (self._place / _DIGEST).read_text(encoding="ascii").strip()
            with (self._place / _CONTENT).open("rb") as source:
                _copy_and_hash(source, target, total)
        except (OSError, ValueError):  # unreadable: it is downloaded again
            expected = ""
        if total.hexdigest() == expected and (checksum is None or checksum[1] == expected):
            os.utime(self._place / _DIGEST)
            return True
        self.remove()
        return False

    def remove(self) -> None:
        """Remove the complete file."""
        for name in (_DIGEST, _CONTENT):
            (self._place / name).unlink(missing_ok=True)


def has_room(folder: Path, needed: int) -> bool:
    """Return whether the disk of a folder has these bytes free, besides those for the log."""
    return shutil.disk_usage(folder).free >= needed + FREE_BYTES


def _key(file: JobDataFile) -> str:
    """Return the name of a file's entry: by its checksum, else by its URL and size."""
    identity = file.checksum or (file.url, str(file.size or file.max_bytes))
    return hashlib.sha256("\n".join(identity).encode()).hexdigest()


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
                say(f"removed {megabytes(sum(sizes))} from this machine's cache to make room")
        finally:
            os.close(handle)


def _copy_and_hash(source: BinaryIO, target: Path, total: Any) -> None:
    """Copy a file and add its content to a hash object. Raises OSError of the source, DataFileError."""
    try:
        sink = target.open("wb")
    except OSError as error:
        raise disk_error(error) from error
    with sink:
        while chunk := source.read(_CHUNK):
            total.update(chunk)
            try:
                sink.write(chunk)
            except OSError as error:
                raise disk_error(error) from error
