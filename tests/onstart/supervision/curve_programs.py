"""Files of curves: written by the real TensorBoard and W&B, and frames that are written by hand."""

import struct
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from vastrun.onstart.supervision.curve_file import CurveFile, CurvePoint
from vastrun.onstart.supervision.curve_formats import masked_crc32c

WANDB_START = b":W&B\xe1\xbe\x00"


def run_program(folder: Path, program: str) -> None:
    """Run a program in the folder, with W&B offline."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "HOME": str(folder)}
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], cwd=folder, check=True, env=environment, timeout=120
    )


def read_all(file: CurveFile) -> list[CurvePoint]:
    return list(file.points(time.monotonic() + 60))


def varint(number: int) -> bytes:
    written = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*written, number])


def part(number: int, content: bytes) -> bytes:
    """A field that is bytes."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def whole(number: int, value: int) -> bytes:
    """A field that is an integer."""
    return varint(number << 3) + varint(value)


def event(step: int, tag: bytes, value: float) -> bytes:
    """A message of TensorBoard's with one scalar."""
    scalar = part(1, tag) + varint(2 << 3 | 5) + struct.pack("<f", value)
    return whole(2, step) + part(5, part(1, scalar))


def framed(record: bytes, *, length: int | None = None) -> bytes:
    """A record of an event file."""
    header = struct.pack("<Q", len(record) if length is None else length)
    return header + struct.pack("<I", masked_crc32c(header)) + record + bytes(4)


def history(step: int, **values: str) -> bytes:
    """A message of W&B's; the values in JSON."""
    items = [part(1, part(1, k.encode()) + part(16, v.encode())) for k, v in values.items()]
    return part(2, b"".join(items) + part(2, whole(1, step)))


def frames(*records: bytes, kind: int = 0) -> bytes:
    """A W&B file with these records, in blocks of 32 KiB; `kind`: of each frame, else the usual one."""
    written = bytearray(WANDB_START)
    for record in records:
        is_first = True
        while is_first or record:
            left = (1 << 15) - len(written) % (1 << 15)
            if left < 7:
                written += bytes(left)
                continue
            content, record = record[: left - 7], record[left - 7 :]
            usual = (1 if is_first else 4) if not record else (2 if is_first else 3)
            checksum = zlib.crc32(bytes([kind or usual]) + content)
            written += struct.pack("<IHB", checksum, len(content), kind or usual) + content
            is_first = False
    return bytes(written)


Hostile = Callable[[], bytes]
HOSTILE_EVENTS: dict[str, Hostile] = {
    "empty": lambda: b"",
    "zeros": lambda: bytes(10_000),
    "text": lambda: b"step 1 loss 7\n" * 1000,
    "a header alone": lambda: framed(event(1, b"loss", 1.0))[:12],
    "cut within a record": lambda: framed(event(1, b"loss", 1.0))[:-9],
    "a length beyond the file": lambda: framed(b"x", length=1 << 62),
    "the largest length": lambda: framed(b"x", length=(1 << 64) - 1),
    "a length with a wrong checksum": lambda: struct.pack("<QI", 5, 7) + bytes(9),
    "a negative step": lambda: framed(event(-1, b"loss", 1.0)),
    "a step beyond all": lambda: framed(event(1 << 62, b"loss", 1.0)),
    "a message that is cut": lambda: framed(event(1, b"loss", 1.0)[:-2]),
    "a number without an end": lambda: framed(b"\x80" * 500),
    "a group": lambda: framed(b"\x0b\x0c"),
    "field number 0": lambda: framed(b"\x00\x01"),
    "a tag of bytes that are no text": lambda: framed(event(1, b"\xff\xfe\x80", 1.0)),
    "a tag with escapes": lambda: framed(event(1, b"\x1b[2Jloss\x07\n", 1.0)),
    "a tag that turns the writing": lambda: framed(event(1, "lo\u202ess".encode(), 1.0)),
    "a tag of a megabyte": lambda: framed(event(1, b"x" * 900_000, 1.0)),
    "a tag called step": lambda: framed(event(1, b"step", 1.0)),
    "no tag": lambda: framed(event(1, b"", 1.0)),
    "a record that is too long": lambda: framed(event(1, b"x" * (1 << 20), 1.0)),
    "many empty records": lambda: framed(b"") * 50_000,
}
"""Event files without a point that may be shown."""
HOSTILE_WANDB: dict[str, Hostile] = {
    "empty": lambda: b"",
    "another name": lambda: b":X&B\xe1\xbe\x00" + frames(history(1, loss="1"))[7:],
    "another version": lambda: b":W&B\xe1\xbe\x07" + frames(history(1, loss="1"))[7:],
    "zeros": lambda: WANDB_START + bytes(100_000),
    "a wrong checksum": lambda: WANDB_START + b"\x01" + frames(history(1, loss="1"))[8:],
    "a frame of no type": lambda: frames(history(1, loss="1"), kind=9),
    "a frame longer than its block": lambda: WANDB_START + struct.pack("<IHB", 1, 0xFFFF, 1) + bytes(70_000),
    "a middle without a beginning": lambda: frames(history(1, loss="1"), kind=3),
    "a beginning without an end": lambda: frames(history(1, loss="1"), kind=2),
    "a record that is too long": lambda: frames(history(1, x="1" * (2 << 20))),
    "a negative step": lambda: frames(history(-5, loss="1")),
    "a value that is a list": lambda: frames(history(1, loss="[1]")),
    "a value that is nested": lambda: frames(history(1, loss="[" * 30)),
    "a value that is text": lambda: frames(history(1, loss='"1"')),
    "a value that is true": lambda: frames(history(1, loss="true")),
    "a number of a thousand digits": lambda: frames(history(1, loss="1" * 1000)),
    "its own names": lambda: frames(history(1, _runtime="1", _step="2")),
    "a message that is cut": lambda: frames(history(1, loss="1")[:-3]),
}
"""W&B files without a point that may be shown."""
