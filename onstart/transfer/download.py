"""Download: fetch one file, continue after interruptions, stop at its size, compare its checksum.

Standard library only.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from vastrun.contract.data_cache import FREE_BYTES, megabytes, new_hash
from vastrun.contract.data_files import JobDataFile
from vastrun.onstart.transfer.sources import (
    DataFileError,
    HttpSource,
    InterruptedDownload,
    ObjectSource,
    disk_error,
)

_CHUNK = 1 << 20
_MAX_FAILURES = 6
"""Maximum failures in a row, each without enough progress."""
_MIN_PROGRESS_BYTES = 1 << 20
"""Progress after which a failure counts as the first one again."""
_MAX_PAUSE_S = 30.0
_SLOW_WINDOW_S = 300.0
_MIN_BYTES_PER_S = 10_000
"""Minimum speed over a window: a server that sends less might never finish, on a machine that costs money."""
_MAX_DOWNLOADS = 3
"""Maximum downloads of a file whose parts do not match its checksum."""
_MAX_INTERRUPTED_S = 3600.0
"""Maximum seconds of a download, besides those that its bytes take at the minimum speed."""
_REPORT_INTERVAL_S = 15.0


class FileDownload:
    """Download of one file to a path `part`, which a later download of the same file continues."""

    def __init__(
        self,
        file: JobDataFile,
        source: HttpSource | ObjectSource,
        part: Path,
        *,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file, self._source, self._sleep, self._now = file, source, sleep, now
        self._part = PartialFile(part, "sha256" if file.checksum is None else file.checksum[0])
        self._version = ""
        self._began_at, self._received = 0.0, 0
        """When the download began, and the bytes that have come since."""

    def run(self) -> str:
        """Download the file and return its digest. Raises DataFileError, and keeps no wrong file."""
        # Without a checksum nothing shows that the rest belongs to the same version.
        if self._file.checksum is None:
            self._part.reset()
        else:
            self._part.load(self._file.max_bytes)
        continued, self._began_at = self._part.size > 0, self._now()
        for _ in range(_MAX_DOWNLOADS):
            continued = self._until_complete() or continued
            digest, expected = self._part.digest, self._file.checksum
            if expected is None or digest == expected[1]:
                return digest
            self._part.reset()
            if not continued:
                shown = self._file.url.partition("?")[0]  # the query may hold a signature
                raise DataFileError(
                    "job",
                    f"{self._file.path}: {shown} has the {expected[0]} {digest}, and the job "
                    f"file says {expected[1]}: the file there has changed, or the job file is wrong",
                )
            # The parts may be of two versions.
            print(f"{self._file.path}: its parts do not match the checksum; it is downloaded again")
            continued = False
        raise DataFileError("server", f"{self._file.path}: its parts do not match the checksum")

    def _until_complete(self) -> bool:
        """Download to the end. Return True if it was interrupted."""
        failures, furthest = 0, self._part.size
        interrupted = False
        while True:
            try:
                self._read_on()
                return interrupted
            except InterruptedDownload as error:
                interrupted = True
                if self._part.size >= furthest + _MIN_PROGRESS_BYTES:
                    failures = 0
                furthest = max(furthest, self._part.size)
                failures += 1
                max_s = _MAX_INTERRUPTED_S + self._received / _MIN_BYTES_PER_S
                if failures == _MAX_FAILURES or self._now() - self._began_at > max_s:
                    times = f"{failures} times in a row" if failures > 1 else "and it takes too long"
                    raise DataFileError(error.blame, f"{self._file.path}: {error}, {times}") from error
                pause_s = min(2.0 ** (failures - 1), _MAX_PAUSE_S) if error.wait_s is None else error.wait_s
                at = megabytes(self._part.size)
                print(f"{self._file.path}: {error}; continuing at {at} in {pause_s:.0f} s")
                self._sleep(pause_s)
            except DataFileError as error:
                raise DataFileError(error.blame, f"{self._file.path}: {error}") from error
            finally:
                self._part.close()

    def _read_on(self) -> None:
        """Read from the end of what exists to the end of the file."""
        if self._part.size and self._part.size == self._file.size:
            return
        with self._source.open(self._part.size, self._version) as opened:
            self._version = opened.version
            if opened.offset != self._part.size:
                self._part.reset()
            self._check_size(opened.total)
            self._check_room(opened.total)
            self._copy(opened.read)
            if self._part.size < (opened.total or 0):
                raise InterruptedDownload("server", f"{self._source.server} closed the connection early")
        if opened.total is None and self._file.size is not None and self._part.size < self._file.size:
            raise InterruptedDownload("server", f"{self._source.server} sent only {self._part.size} bytes")

    def _copy(self, read: Callable[[int], bytes]) -> None:
        reported_at = window_at = began_at = self._now()
        window_size = began_size = self._part.size
        while chunk := read(_CHUNK):
            if self._part.size + len(chunk) > self._file.max_bytes:
                self._part.reset()
                raise DataFileError("job", f"the file is larger than {_limit_text(self._file)}")
            self._part.append(chunk)
            self._received += len(chunk)
            now = self._now()
            if now - reported_at >= _REPORT_INTERVAL_S:
                reported_at = now
                speed = (self._part.size - began_size) / (now - began_at)
                print(f"{self._file.path}: {megabytes(self._part.size)}, {megabytes(speed)}/s")
            if now - window_at >= _SLOW_WINDOW_S:
                if self._part.size - window_size < _MIN_BYTES_PER_S * (now - window_at):
                    raise InterruptedDownload("server", f"{self._source.server} sends too slowly")
                window_at, window_size = now, self._part.size

    def _check_size(self, total: int | None) -> None:
        expected = self._file.size
        if total is None or (total == expected if expected is not None else total <= self._file.max_bytes):
            return
        self._part.reset()
        raise DataFileError(
            "job", f"the file has {total} bytes, and the job file says {_limit_text(self._file)}"
        )

    def _check_room(self, total: int | None) -> None:
        """Raise DataFileError before the first byte: a part of a file is useless."""
        needed = (total if total is not None else self._file.size or 0) - self._part.size
        free = shutil.disk_usage(self._part.path.parent).free
        if needed + FREE_BYTES > free:
            raise DataFileError(
                "disk", f"{megabytes(needed)} more are needed, and the disk has {megabytes(free)} free"
            )


class PartialFile:
    """An incomplete file on the disk and its digest so far."""

    def __init__(self, path: Path, algorithm: str) -> None:
        self.path, self._algorithm = path, algorithm
        self.size, self._hash = 0, new_hash(algorithm)
        self._open: BinaryIO | None = None

    @property
    def digest(self) -> str:
        """Return the digest of the whole content."""
        return str(self._hash.hexdigest())

    def load(self, max_bytes: int) -> None:
        """Take over what an earlier download left, unless it is too large. Raises DataFileError."""
        try:
            if self.path.exists() and self.path.stat().st_size <= max_bytes:
                self.size = hash_into(self._hash, self.path)
            else:
                self.reset()
        except OSError as error:
            raise disk_error(error) from error

    def reset(self) -> None:
        """Remove it, to begin again."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.size, self._hash = 0, new_hash(self._algorithm)

    def append(self, chunk: bytes) -> None:
        """Write a chunk at the end. Raises DataFileError."""
        try:
            if self._open is None:
                self._open = self.path.open("ab", buffering=0)
            # An unbuffered write may be partial, on a disk that is nearly full.
            view = memoryview(chunk)
            while view:
                view = view[self._open.write(view) :]
        except OSError as error:
            self.reset()
            raise disk_error(error) from error
        self.size += len(chunk)
        self._hash.update(chunk)

    def close(self) -> None:
        """Close it until the next chunk."""
        if self._open is not None:
            self._open.close()
            self._open = None


def hash_into(total: Any, path: Path) -> int:
    """Add the content of a file to a hash object and return its bytes."""
    size = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            total.update(chunk)
            size += len(chunk)
    return size


def _limit_text(file: JobDataFile) -> str:
    return f"size: {file.size}" if file.size is not None else f"at most {file.max_bytes} (max_gb)"
