"""Protobuf: the fields of a message, from bytes. Only what event files need. Standard library only.

https://protobuf.dev/programming-guides/encoding/ is the format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_MAX_SHIFT = 63


class MessageField(NamedTuple):
    """A field of a message."""

    kind: tuple[int, int]
    """Its number, and its wire type."""
    integer: int = 0
    """The value of a varint."""
    content: bytes = b""
    """The value of all other types."""


class MalformedError(ValueError):
    """The bytes are no message."""


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
            raise MalformedError(f"no wire type {wire}")
        if size > len(message) - at:
            raise MalformedError("a field is cut off")
        yield MessageField((number, wire), content=message[at : at + size])
        at += size


def signed(value: int) -> int:
    """Return the number that a varint of the types int32 and int64 stands for."""
    return value - (1 << 64) if value >> 63 else value


def unzigzag(value: int) -> int:
    """Return the number that a varint of the types sint32 and sint64 stands for."""
    return value >> 1 ^ -(value & 1)


def number_of(layout: str, content: bytes) -> float:
    """Unpack one number of a `struct` layout. Raises MalformedError."""
    if len(content) != struct.calcsize(layout):
        raise MalformedError(f"{len(content)} bytes are no single number")
    return float(struct.unpack(layout, content)[0])


def varints(packed: bytes) -> Iterator[int]:
    """Yield the numbers of a packed field of varints. Raises MalformedError."""
    at = 0
    while at < len(packed):
        value, at = _varint(packed, at)
        yield value


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where it ends."""
    value = shift = 0
    while at < len(message) and shift <= _MAX_SHIFT:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
    raise MalformedError("a number has no end")
