"""Curve file: a log file of TensorBoard or W&B that a program still writes, read record by record.

A file is read from where the last look ended, whole records only. One whose framing is broken is given up.
Standard library only.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, ClassVar, NamedTuple

from trainer.supervision.protobuf import MalformedError

MAX_RECORD = 1 << 20
"""Bytes of one record; longer ones hold pictures or a graph, no curve, and are skipped."""
MAX_STEP = 10**12


class CurvePoint(NamedTuple):
    """One value of one name."""

    step: int
    name: str
    value: float | None
    """Value; None: it was not finite."""


class BrokenFileError(ValueError):
    """The file does not have the format that its name says."""


@dataclass
class CurveFile(ABC):
    """One file of curves."""

    path: Path
    offset: int = 0
    """Bytes that were read."""
    is_broken: bool = False

    has_sub_runs: ClassVar[bool] = False
    """True: its folder is a part of the names of its curves."""

    def points(self, deadline: float) -> Iterator[CurvePoint]:
        """Yield the points that were added, until the deadline (monotonic clock)."""
        if self.is_broken:
            return
        with suppress(OSError):
            size = os.stat(self.path).st_size  # noqa: PTH116 (many files, every two seconds)
            if size < self.offset:
                self.is_broken = True  # it was begun anew, and nobody knows where a record begins
            if size <= self.offset:
                return
            with _opened(self.path) as file:
                yield from self._points(file, size, deadline)

    def _points(self, file: BinaryIO, size: int, deadline: float) -> Iterator[CurvePoint]:
        while time.monotonic() < deadline:
            try:
                record = self._next_record(file, size)
            except BrokenFileError:
                self.is_broken = True
                return
            if record is None:
                return
            with suppress(MalformedError):  # of this record only: the next ones are framed by themselves
                yield from self._points_of(record)

    @abstractmethod
    def _next_record(self, file: BinaryIO, size: int) -> bytes | None:
        """Return the record at `offset` and move that; None: it is not whole yet. Raises BrokenFileError.

        A record that is too long is returned empty.
        """

    @abstractmethod
    def _points_of(self, record: bytes) -> Iterator[CurvePoint]:
        """Yield the points of a record. Raises MalformedError."""


def _opened(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe by that name would block. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(f"{path} is no regular file")
    return os.fdopen(number, "rb")
