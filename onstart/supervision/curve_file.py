"""Curve file: reads a growing log file of TensorBoard or W&B, record by record.

Each read continues where the last one ended, with complete records only. A file with broken framing is not
read further. A record is a Protobuf message (https://protobuf.dev/programming-guides/encoding/).
Standard library only.
"""

from __future__ import annotations

import os
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import BinaryIO, ClassVar, NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
MAX_RECORD_BYTES = 1 << 20
"""Maximum bytes of one record; longer ones hold pictures or a graph, no curve, and are skipped."""
MAX_STEP = 10**12


class MessageField(NamedTuple):
    kind: tuple[int, int]
    """Field number and wire type."""
    integer: int = 0
    """The value of a varint."""
    content: bytes = b""
    """The value of every other type."""


class MalformedError(ValueError):
    """The bytes are no Protobuf message."""


def fields(message: bytes) -> Iterator[MessageField]:
    """Yield the fields of a message in their order. Raises MalformedError."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if not number:
            raise MalformedError("a field has the number 0")
        if wire == VARINT:
            value, at = _varint(message, at)
            yield MessageField((number, wire), integer=value)
            continue
        if wire == BYTES:
            size, at = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            size = 8 if wire == FIXED64 else 4
        else:
            raise MalformedError(f"unknown wire type {wire}")
        if size > len(message) - at:
            raise MalformedError("a field is cut off")
        yield MessageField((number, wire), content=message[at : at + size])
        at += size


def signed(value: int) -> int:
    """Decode a varint of the types int32 and int64."""
    return value - (1 << 64) if value >> 63 else value


def first_integer(message: bytes) -> int:
    """Return the integer of a message's first field; a zero is left out of it. Raises MalformedError."""
    found = (signed(part.integer) for part in fields(message) if part.kind == (1, VARINT))
    return next(found, 0)


def number_of(layout: str, content: bytes) -> float:
    """Unpack one number of a `struct` layout. Raises MalformedError."""
    if len(content) != struct.calcsize(layout):
        raise MalformedError(f"{len(content)} bytes are not a single number")
    return float(struct.unpack(layout, content)[0])


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number, and the offset after it."""
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise MalformedError("a number has no end")


class CurvePoint(NamedTuple):
    step: int
    name: str
    value: float | None
    """The value; None: it was not finite."""


@dataclass
class CurveFile(ABC):
    path: Path
    offset: int = 0
    """Number of bytes that were read."""
    is_broken: bool = False
    """True: it does not have the format that its name implies, or no longer."""

    has_sub_runs: ClassVar[bool] = False
    """True: its folder is part of the names of its curves."""

    def points(self, deadline: float) -> Iterator[CurvePoint]:
        """Yield the points that were added, until the deadline (monotonic clock)."""
        if self.is_broken:
            return
        with suppress(OSError):
            size = os.stat(self.path).st_size  # noqa: PTH116 (many files, every two seconds)
            if size < self.offset:
                self.is_broken = True  # truncated: no longer known where a record begins
            if size <= self.offset:
                return
            # A pipe by that name would block.
            number = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            if not S_ISREG(os.fstat(number).st_mode):
                os.close(number)
                raise OSError(f"{self.path} is not a regular file")
            with os.fdopen(number, "rb") as file:
                while time.monotonic() < deadline and (record := self._next_record(file, size)) is not None:
                    with suppress(MalformedError):  # skips this record only: each record has its own frame
                        yield from self._points_of(record)

    @abstractmethod
    def _next_record(self, file: BinaryIO, size: int) -> bytes | None:
        """Return the record at `offset` and advance it; None for an incomplete one, or in a broken file.

        A record that is too long is returned empty.
        """

    @abstractmethod
    def _points_of(self, record: bytes) -> Iterator[CurvePoint]:
        """Yield the points of a record. Raises MalformedError."""
