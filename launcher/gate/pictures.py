"""Pictures of a box: parse_picture() returns a PNG of bounded size, without metadata, for a page."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from vastrun.launcher.gate import caps

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_ALLOWED_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
"""Chunks needed to show a picture. Texts, profiles, animations and data after the end are dropped."""
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""Allowed bits per sample by colour type (PNG specification, 11.2.1)."""
_HEADER = struct.Struct(">IIBBBBB")


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A PNG that is safe to show."""

    width: int
    height: int
    """Pixels."""
    png: bytes


def parse_picture(content: bytes) -> Picture | None:
    """Parse a PNG; None when it is not a PNG, is damaged, or is larger than `caps` allows.

    Its pixels are not decoded: the viewer does that, and needs no more memory than `caps` allows.
    """
    if len(content) > caps.PICTURE_BYTES or not content.startswith(_SIGNATURE):
        return None
    chunks = list(_chunks(content))
    kinds = [kind for kind, _ in chunks]
    if not chunks or kinds[0] != b"IHDR" or kinds[-1] != b"IEND" or b"IDAT" not in kinds:
        return None
    size = _size_of(chunks[0][1])
    if size is None:
        return None
    png = _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks if kind in _ALLOWED_CHUNKS)
    return Picture(width=size[0], height=size[1], png=png)


def _chunks(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield kind and data of each chunk until the end of the picture or the first invalid chunk."""
    at = len(_SIGNATURE)
    while at + 12 <= len(content):
        length = int.from_bytes(content[at : at + 4])
        kind, data = content[at + 4 : at + 8], content[at + 8 : at + 8 + length]
        if _chunk(kind, data) != content[at : at + 12 + length]:
            return
        yield kind, data
        if kind == b"IEND":
            return
        at += 12 + length


def _chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)


def _size_of(header: bytes) -> tuple[int, int] | None:
    """Return width and height; None when the header is invalid or the picture too large."""
    if len(header) != _HEADER.size:
        return None
    width, height, depth, color, compression, filtering, interlace = _HEADER.unpack(header)
    known = depth in _DEPTHS.get(color, ()) and not compression and not filtering and interlace in (0, 1)
    if not known or not width or not height or width * height > caps.PICTURE_PIXELS:
        return None
    return width, height
