"""TensorBoard file: reads the scalars of event files by SummaryWriter, Keras, Lightning and others.

Frames are those of TFRecord: length, its checksum, the message `Event`, its checksum. Only the first checksum
is verified: it validates the length, and CRC-32C of whole messages in Python would take longer than
everything else. Standard library only.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from typing import BinaryIO, ClassVar

from vastrun.onstart.supervision import curve_file

_HEADER = struct.Struct("<QI")
_POLYNOMIAL = 0x82F63B78
_MASK_DELTA = 0xA282EAD8


class TensorBoardFile(curve_file.CurveFile):
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
