"""The notes of a core file, as the kernel writes them: where and at which address a program crashed."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from vastrun.trainer.supervision.core_file import CoreNotes, read_notes

STATUS, AUXILIARY, SIGNAL, FILES = 1, 6, 0x53494749, 0x46494C45
X86_64, ARM_64, OTHER = 62, 183, 8
PAGE = 4096
MAPPINGS = (
    (0x400000, 0x500000, 0, "/usr/bin/python3"),
    (0x7F0000000000, 0x7F0000100000, 2, "/usr/lib/libmodel.so.1"),
)


def note(kind: int, content: bytes, name: bytes = b"CORE\0") -> bytes:
    padded = [part + bytes(-len(part) % 4) for part in (name, content)]
    return struct.pack("<III", len(name), len(content), kind) + b"".join(padded)


def signal_note(address: int, code: int = 1) -> bytes:
    return note(SIGNAL, struct.pack("<iiiiQ", 11, 0, code, 0, address) + bytes(104))


def status_note(counter: int, at: int = 240) -> bytes:
    return note(STATUS, bytes(at) + struct.pack("<Q", counter) + bytes(88))


def files_note() -> bytes:
    spans = b"".join(struct.pack("<QQQ", start, end, offset) for start, end, offset, _ in MAPPINGS)
    names = b"".join(name.encode() + b"\0" for *_, name in MAPPINGS)
    return note(FILES, struct.pack("<QQ", len(MAPPINGS), PAGE) + spans + names)


def auxiliary_note(entry: int) -> bytes:
    return note(AUXILIARY, struct.pack("<QQQQQQ", 6, PAGE, 9, entry, 0, 0))


def core(path: Path, *notes: bytes, machine: int = X86_64, kind: int = 4, truncated: int = 0) -> Path:
    """A core whose second program header names the notes."""
    body, headers_at = b"".join(notes), 64
    notes_at = headers_at + 2 * 56
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01", kind, machine, 1, 0, headers_at, 0, 0, 64, 56, 2, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 0, 0, 0)
    named = struct.pack("<IIQQQQQQ", 4, 0, notes_at, 0, 0, len(body), 0, 0)
    path.write_bytes((header + load + named + body)[: -truncated or None])
    return path


IN_LIBRARY, ENTRY = 0x7F0000001234, 0x400100


@pytest.mark.parametrize(
    ("notes", "machine", "expected"),
    [
        (
            (status_note(IN_LIBRARY), signal_note(0x12_3456_789A), auxiliary_note(ENTRY), files_note()),
            X86_64,
            CoreNotes(address=0x12_3456_789A, location="libmodel.so.1+0x3234", executable="/usr/bin/python3"),
        ),
        # The first thread's notes count; what is padded to four bytes does not shift the next.
        (
            (
                note(7, b"odd", name=b"LINUX\0"),
                signal_note(16),
                status_note(0x400000, 368),
                signal_note(32),
                files_note(),
            ),
            ARM_64,
            CoreNotes(address=16, location="python3+0x0", executable=""),
        ),
        # A signal that a process sent has no address; the end of a mapping is no part of it.
        (
            (signal_note(16, code=0), status_note(0x500000), files_note()),
            X86_64,
            CoreNotes(address=None, location="", executable=""),
        ),
        ((status_note(IN_LIBRARY), files_note()), OTHER, CoreNotes(address=None, location="", executable="")),
    ],
    ids=["a crash in a library", "on ARM, with several threads", "a signal of a process", "another machine"],
)
def test_a_core_names_the_address_the_place_and_the_program(
    tmp_path: Path, notes: tuple[bytes, ...], machine: int, expected: CoreNotes
) -> None:
    assert read_notes(core(tmp_path / "core", *notes, machine=machine)) == expected


def test_what_is_no_core_or_is_cut_off_has_no_notes(tmp_path: Path) -> None:
    path = tmp_path / "core"
    assert read_notes(path) is None
    assert read_notes(core(path, signal_note(16), kind=2)) is None
    assert read_notes(core(path, signal_note(16), truncated=200)) is None
    # The notes themselves may be cut off: those before are read.
    notes = read_notes(core(path, signal_note(16), status_note(IN_LIBRARY), truncated=1))
    assert notes == CoreNotes(address=16, location="", executable="")
