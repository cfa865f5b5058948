"""Curve formats: reads the numbers that TensorBoard's writers and W&B record. Standard library only."""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, ClassVar

from vastrun.onstart.supervision import curve_file

_HEADER = struct.Struct("<QI")
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8
_START = b":W&B\xe1\xbe\x00"
"""Header of W&B's file: the name, the magic number of the format, and its version."""
_BLOCK = 1 << 15
_FRAME = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class TensorBoardFile(curve_file.CurveFile):
    """The scalars of an event file by SummaryWriter, Keras, Lightning and others.

    Frames are those of TFRecord: length, its checksum, the message `Event`, its checksum. Only the first
    checksum is verified: it validates the length, and CRC-32C of whole messages in Python would take longer
    than everything else.
    """

    has_sub_runs: ClassVar[bool] = True

    def _next_record(self, file: BinaryIO, size: int) -> bytes | None:
        file.seek(self.offset)
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        length, checksum = _HEADER.unpack(header)
        self.is_broken = masked_crc32c(header[:8]) != checksum
        end = self.offset + _HEADER.size + length + 4
        if self.is_broken or end > size:
            return None
        record = file.read(length) if length <= curve_file.MAX_RECORD_BYTES else b""
        self.offset = end
        return record

    def _points_of(self, record: bytes) -> Iterator[curve_file.CurvePoint]:
        step, summaries = 0, []
        for kind, integer, content in curve_file.fields(record):
            if kind == (2, curve_file.VARINT):
                step = curve_file.signed(integer)
            elif kind == (5, curve_file.BYTES):
                summaries.append(content)
        if not 0 <= step <= curve_file.MAX_STEP:
            return
        for summary in summaries:
            for kind, _, content in curve_file.fields(summary):
                if kind == (1, curve_file.BYTES):
                    yield from _scalar(step, content)


def _scalar(step: int, summary_value: bytes) -> Iterator[curve_file.CurvePoint]:
    """Yield the point of a `Summary.Value`, if it is a scalar."""
    tag, value = b"", None
    for kind, _, content in curve_file.fields(summary_value):
        if kind == (1, curve_file.BYTES):
            tag = content
        elif kind == (2, curve_file.FIXED32):
            value = _rounded(curve_file.number_of("<f", content))
        elif kind == (8, curve_file.BYTES):
            value = _tensor_value(content)
    if value is not None:
        name = tag.decode("utf-8", "replace")
        yield curve_file.CurvePoint(step, name, value if math.isfinite(value) else None)


def _tensor_value(tensor: bytes) -> float | None:
    """Return the number in a tensor without dimensions; None for any other tensor."""
    layout, found = "", list[tuple[str, bytes]]()
    for (number, wire), integer, content in curve_file.fields(tensor):
        if (number, wire) == (1, curve_file.VARINT):
            layout = {1: "<f", 2: "<d"}.get(integer, "")
        elif (number, wire) == (2, curve_file.BYTES) and any(
            part.kind[0] == 2 for part in curve_file.fields(content)
        ):
            return None  # it has dimensions
        elif number in (4, 5, 6):
            found.append(({5: "<f", 6: "<d"}.get(number, layout), content))
    if len(found) != 1 or not found[0][0]:
        return None
    value = curve_file.number_of(*found[0])
    return _rounded(value) if found[0][0] == "<f" else value


def _rounded(value: float) -> float:
    return float(f"{value:.7g}")


def masked_crc32c(content: bytes) -> int:
    """Return the checksum as TFRecord stores it."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


@dataclass
class WandbFile(curve_file.CurveFile):
    """The numbers that `wandb.log` wrote to `run-ID.wandb`, online or offline.

    The file is a log in LevelDB's format: blocks of 32 KiB with frames of checksum, length and type, after a
    header of seven bytes; a frame holds a message `Record`, or a part of one.
    """

    _parts: bytearray | None = None
    """The incomplete record; None: there is none, or it is too long."""

    def _next_record(self, file: BinaryIO, size: int) -> bytes | None:
        if self.offset == 0 and size >= len(_START):
            self.offset = len(_START)
            self.is_broken = file.read(len(_START)) != _START  # another version of W&B
        if self.is_broken or self.offset == 0:
            return None
        while (frame := self._next_frame(file, size)) is not None:
            kind, content = frame
            if kind in (_FULL, _FIRST):
                self._parts = bytearray(content)
            elif self._parts is not None:
                self._parts += content
            if self._parts is not None and len(self._parts) > curve_file.MAX_RECORD_BYTES:
                self._parts = None
            if kind in (_FULL, _LAST):
                record, self._parts = bytes(self._parts or b""), None
                return record
        return None

    def _next_frame(self, file: BinaryIO, size: int) -> tuple[int, bytes] | None:
        """Return the type and the content of the next frame; None: it is incomplete, or the file broken."""
        while True:
            left = _BLOCK - self.offset % _BLOCK
            end = self.offset + min(left, _FRAME.size)
            if end > size:
                return None
            file.seek(self.offset)
            header = file.read(end - self.offset)
            if left >= _FRAME.size and any(header):
                break
            if self.offset + left > size:
                return None
            self.offset += left  # nothing but zeros up to the end of the block
        checksum, length, kind = _FRAME.unpack(header)
        self.is_broken = kind not in (_FULL, _FIRST, _MIDDLE, _LAST) or length > left - _FRAME.size
        if self.is_broken or end + length > size:
            return None
        content = file.read(length)
        self.is_broken = zlib.crc32(content, zlib.crc32(header[-1:])) != checksum
        self.offset = end + length
        return None if self.is_broken else (kind, content)

    def _points_of(self, record: bytes) -> Iterator[curve_file.CurvePoint]:
        for kind, _, content in curve_file.fields(record):
            if kind == (2, curve_file.BYTES):
                yield from _points_of_history(content)


def _points_of_history(history: bytes) -> Iterator[curve_file.CurvePoint]:
    """Yield the numbers of one step, from one or several calls of `wandb.log`."""
    step = 0
    found: dict[str, float | None] = {}
    for kind, _, content in curve_file.fields(history):
        if kind == (1, curve_file.BYTES):
            name, value = _item(content)
            if value is not None and name and not name.startswith("_"):
                found[name] = value if math.isfinite(value) else None
        elif kind == (2, curve_file.BYTES):
            step = curve_file.first_integer(content)
    if 0 <= step <= curve_file.MAX_STEP:
        for name, value in found.items():
            yield curve_file.CurvePoint(step, name, value)


def _item(item: bytes) -> tuple[str, float | None]:
    """Return the name and the number of an item; None: it is not a number."""
    key, nested = "", list[str]()
    value: float | None = None
    for kind, integer, content in curve_file.fields(item):
        if kind == (1, curve_file.BYTES):
            key = content.decode("utf-8", "replace")
        elif kind == (2, curve_file.BYTES):
            nested.append(content.decode("utf-8", "replace"))
        elif kind == (5, curve_file.VARINT):
            value = float(integer >> 1 ^ -(integer & 1))  # of the type sint64
        elif kind == (6, curve_file.FIXED64):
            value = curve_file.number_of("<d", content)
        elif kind == (16, curve_file.BYTES):
            value = _number(content)
    return key or ".".join(nested), value


def _number(text: bytes) -> float | None:
    """Parse a JSON number, `NaN` or `Infinity`; None for anything else."""
    if len(text) > 40:
        return None
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return None if isinstance(value, bool) or not isinstance(value, (int, float)) else float(value)
