"""What of a box's pictures a page may show."""

import zlib

import pytest

from vastrun.launcher.gate import caps
from vastrun.launcher.gate.pictures import parse_picture


def chunk(kind: bytes, data: bytes) -> bytes:
    return len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)


def header(width: int = 2, height: int = 3, rest: bytes = b"\x08\x00\x00\x00\x00") -> bytes:
    return chunk(b"IHDR", width.to_bytes(4) + height.to_bytes(4) + rest)


START, END = b"\x89PNG\r\n\x1a\n", chunk(b"IEND", b"")
DATA = chunk(b"IDAT", zlib.compress(b"\0\xff\0" * 3))
GOOD = START + header() + DATA + END


def test_a_png_is_taken_as_it_is() -> None:
    picture = parse_picture(GOOD)
    assert picture is not None
    assert (picture.width, picture.height, picture.png) == (2, 3, GOOD)


@pytest.mark.parametrize(
    "content",
    [
        START + header() + chunk(b"tEXt", b"<script>") + DATA + chunk(b"eXIf", b"evil") + END,
        START + header() + chunk(b"acTL", bytes(8)) + DATA + END,
        GOOD + b"<script>alert(1)</script>",
        GOOD + GOOD,
    ],
)
def test_nothing_is_left_in_it_but_the_picture(content: bytes) -> None:
    picture = parse_picture(content)
    assert picture is not None
    assert picture.png == GOOD


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<svg/>",
        b"GIF89a",
        START,
        START + DATA + END,
        START + header() + END,
        START + header() + DATA,
        GOOD[:-1],
        GOOD.replace(b"IDAT", b"IDAX"),
        START + header(0) + DATA + END,
        START + header(5000, 5000) + DATA + END,
        START + header(2**31, 1) + DATA + END,
        START + header(rest=b"\x03\x00\x00\x00\x00") + DATA + END,
        START + header(rest=b"\x08\x01\x00\x00\x00") + DATA + END,
        START + header(rest=b"\x08\x00\x00\x00\x07") + DATA + END,
        START + header(rest=b"\x08") + DATA + END,
        START + header() + chunk(b"IDAT", bytes(caps.PICTURE_BYTES)) + END,
        START + b"\xff\xff\xff\xffIHDR",
    ],
)
def test_what_is_no_png_of_bounded_size_is_refused(content: bytes) -> None:
    assert parse_picture(content) is None
