"""Core files: where the kernel writes them, how large they may be, and what their notes say of a crash."""

import os
import resource
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from vastrun.onstart.supervision.core_file import CoreLocation, CoreNotes, core_location, read_notes

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
            CoreNotes(address=16, location="python3+0x0"),
        ),
        # A signal that a process sent has no address; the end of a mapping is no part of it.
        (
            (signal_note(16, code=0), status_note(0x500000), files_note()),
            X86_64,
            CoreNotes(),
        ),
        ((status_note(IN_LIBRARY), files_note()), OTHER, CoreNotes()),
    ],
    ids=["a crash in a library", "on ARM, with several threads", "a signal of a process", "another machine"],
)
def test_a_core_names_the_address_the_place_and_the_program(
    tmp_path: Path, notes: tuple[bytes, ...], machine: int, expected: CoreNotes
) -> None:
    assert read_notes(core(tmp_path / "core", *notes, machine=machine)) == expected


def test_what_is_no_core_or_is_cut_off_has_no_notes(tmp_path: Path) -> None:
    path = tmp_path / "core"
    assert read_notes(path) == CoreNotes()
    assert read_notes(core(path, signal_note(16), kind=2)) == CoreNotes()
    assert read_notes(core(path, signal_note(16), truncated=200)) == CoreNotes()
    # The notes themselves may be cut off: those before are read.
    notes = read_notes(core(path, signal_note(16), status_note(IN_LIBRARY), truncated=1))
    assert notes == CoreNotes(address=16)


LIMITS = """
import json, os, resource, sys
from pathlib import Path
from vastrun.onstart.supervision.core_file import allow_core

box, path, soft, hard, ranks = Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
allow_core(box, ranks, {"PATH": path})
print(*resource.getrlimit(resource.RLIMIT_CORE), Path("/proc/self/coredump_filter").read_text())
"""
ENDLESS = resource.RLIM_INFINITY


@pytest.mark.skipif(
    resource.getrlimit(resource.RLIMIT_CORE)[1] != ENDLESS or core_location(Path.cwd()) is None,
    reason="this computer writes no core files",
)
@pytest.mark.parametrize(
    ("gdb", "soft", "hard", "ranks", "limit"),
    [
        (False, 0, ENDLESS, 1, 16 << 20),
        (False, 0, 5000, 1, 5000),
        (False, 0, 0, 1, 0),
        (False, 4000, ENDLESS, 1, 4000),
        (True, 0, ENDLESS, 1, 2 << 30),
        (True, 0, ENDLESS, 10**6, 2 << 30),
    ],
    ids=["without gdb", "the hard limit", "forbidden", "set before", "with gdb", "a part of the disk"],
)
def test_a_core_may_have_as_many_bytes_as_can_be_read_and_the_disk_has_room_for(
    tmp_path: Path, gdb: bool, soft: int, hard: int, ranks: int, limit: int
) -> None:
    if gdb:
        (tmp_path / "gdb").touch(mode=0o755)
    free = shutil.disk_usage(tmp_path).free // 32
    done = subprocess.run(
        [sys.executable, "-c", LIMITS, *map(str, (tmp_path, tmp_path, soft, hard, ranks))],
        capture_output=True,
        text=True,
        check=True,
    )
    found_soft, found_hard, memory = done.stdout.split()
    assert int(found_hard) == hard
    # Others write to the disk meanwhile.
    assert int(found_soft) in (limit, pytest.approx(free / ranks, rel=0.2))
    assert int(found_soft) <= min(limit, hard if hard >= 0 else limit)
    assert (int(memory, 16) == 0x11) is (soft == 0 and hard != 0)


@pytest.mark.parametrize(
    ("pattern", "uses_pid", "name", "has_pid"),
    [
        ("core", "0", "core", False),
        ("core", "1", "core.*", True),
        ("core.%p", "1", "core.*", True),
        ("core.%e.%I", "0", "core.*.*", True),
        ("/cores/[%e]", "0", "[[]*]", False),
        ("|/usr/lib/handler %p", "0", None, False),
        ("@/run/socket", "0", None, False),
        ("/cores/%e/core", "0", None, False),
        ("", "0", None, False),
    ],
)
def test_the_place_of_cores_is_read_from_the_kernel_s_pattern(
    tmp_path: Path, pattern: str, uses_pid: str, name: str | None, has_pid: bool
) -> None:
    for file, text in (("pattern", pattern), ("uses_pid", uses_pid)):
        (tmp_path / file).write_text(text + "\n")
    found = core_location(tmp_path, tmp_path / "pattern", tmp_path / "uses_pid")
    folder = Path("/cores") if pattern.startswith("/cores") else tmp_path
    expected = None if name is None else CoreLocation(folder=folder, name=name, has_pid=has_pid)
    assert found == expected


def test_cores_of_a_place_are_those_since_the_start_and_all_but_two_are_deleted(tmp_path: Path) -> None:
    for number in range(5):
        path = core(tmp_path / f"core.{70 + number}", kind=2 if number == 4 else 4)
        os.utime(path, (100.0 + number, 100.0 + number))
    (tmp_path / "core.link").symlink_to("core.70")
    location = CoreLocation(folder=tmp_path, name="core.*", has_pid=True)

    def names(since: float) -> list[str]:
        return [path.name for path in location.written(since)]

    assert names(101.0) == ["core.71", "core.72", "core.73"]
    assert names(101.1) == ["core.72", "core.73"]
    assert location.find(72, 100.0) == tmp_path / "core.72"
    assert location.find(9, 100.0) == tmp_path / "core.73", "the newest"
    assert location.find(9, 104.0) is None
    assert location.delete(100.0, keep=2) == 2
    assert names(0.0) == ["core.72", "core.73"]
