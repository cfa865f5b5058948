"""Core file: locate, bound and read the kernel's dump of a crashed program.

The notes at its beginning name the signal, the address and the mapped files; even the smallest core has them.
Linux; standard library only.
"""

from __future__ import annotations

import re
import resource
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vastrun.contract.job import working_folder
from vastrun.onstart.optional_files import read_text

MAX_CORE_BYTES = 2 << 30
"""Maximum bytes of a core file where gdb is installed."""
MIN_CORE_BYTES = 16 << 20
"""Bytes that hold the notes: without gdb the rest of a core is useless."""
_DISK_DIVISOR = 32
"""Divisor of the free disk space for one core: the workers of a rank may crash with it."""
MAX_CORES = 2
"""Maximum cores at once: a program may continue while its processes crash one after the other."""

_PATTERN = Path("/proc/sys/kernel/core_pattern")
_USES_PID = Path("/proc/sys/kernel/core_uses_pid")
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_SIGNAL_INFO = struct.Struct("<8xi4xQ")
"""The code and the address of a signal: a code above 0 is the kernel's."""
_ELF64 = b"\x7fELF\x02\x01"
_CORE, _NOTE = 4, 4
_STATUS, _AUXILIARY, _SIGNAL, _FILES = 1, 6, 0x53494749, 0x46494C45
_PC_AT = {62: 240, 183: 368}
"""Offset of the program counter in a thread's status, by machine: x86-64 and ARM64."""
_ENTRY = 9
"""The auxiliary value that is the program's first instruction."""


@dataclass(frozen=True, kw_only=True)
class CoreLocation:
    """The path at which the kernel writes the core of a program that runs in a folder."""

    folder: Path
    name: str
    """A glob for the file's name."""
    has_pid: bool
    """True when the name differs for each process."""

    def find(self, pid: int, since: float) -> Path | None:
        """Return the core of a process that was written since then; the newest where names do not differ."""
        cores = self.written(since)
        own = [core for core in cores if core.match(f"*{pid}*")] if self.has_pid else []
        return next(reversed(own or cores), None)

    def written(self, since: float) -> list[Path]:
        """Return all cores that were written since `since` (epoch seconds), the oldest first."""
        found = []
        with suppress(OSError):
            for path in self.folder.glob(self.name):
                with suppress(OSError):
                    written_at = path.stat().st_mtime
                    if path.is_file() and not path.is_symlink() and written_at >= since and _is_core(path):
                        found.append((written_at, path))
        return [path for _, path in sorted(found)]

    def delete(self, since: float, *, keep: int = 0) -> int:
        """Delete the cores that were written since then, but for the newest ones, and return their number."""
        cores = self.written(since)
        surplus = cores[: max(0, len(cores) - keep)]
        for core in surplus:
            with suppress(OSError):
                core.unlink()
        return len(surplus)


def core_location(folder: Path, pattern: Path = _PATTERN, uses_pid: Path = _USES_PID) -> CoreLocation | None:
    """Return where cores are written; None: the kernel pipes them to a program, or it is unknown."""
    text = read_text(pattern).strip()
    parent, _, name = text.rpartition("/")
    if not text or text.startswith(("|", "@")) or "%" in parent:
        return None
    has_pid = re.search("%[pPiI]", name) is not None
    name = re.sub("%.", "*", name.replace("[", "[[]"))
    if read_text(uses_pid).strip() == "1" and not has_pid:
        name, has_pid = f"{name}.*", True
    return CoreLocation(folder=folder / parent if parent else folder, name=name, has_pid=has_pid)


class CoreMapping(NamedTuple):
    """A file, or a part of one, in the memory of a process."""

    start: int
    end: int
    offset: int
    """Byte offset within the file."""
    file: str


@dataclass(frozen=True, kw_only=True)
class CoreNotes:
    """Facts from the notes of a core; without a core none is known."""

    address: int | None = None
    """The address that could not be accessed; None: a process sent the signal."""
    location: str = ""
    """Library and offset of the instruction; empty where it is in no library."""
    executable: str = ""
    """Path of the program; empty where it is unknown."""


def read_notes(path: Path) -> CoreNotes:
    """Read the notes of a core; without facts where they cannot be read."""
    try:
        with path.open("rb") as file:
            machine, notes = _notes_of(file)
        found: dict[int, bytes] = {}
        for kind, content in _each(notes):
            found.setdefault(kind, content)  # the thread that crashed comes first
        mappings = list(_mappings(found.get(_FILES, bytes(16))))
        code, address = _SIGNAL_INFO.unpack_from(found.get(_SIGNAL, bytes(_SIGNAL_INFO.size)))
        at, status = _PC_AT.get(machine, 0), found.get(_STATUS, b"")
        counter = struct.unpack_from("<Q", status, at)[0] if at and status else 0
        auxiliary = dict(struct.iter_unpack("<QQ", found.get(_AUXILIARY, b"")))
    except (OSError, struct.error, ValueError):
        return CoreNotes()
    place, program = (
        next((mapping for mapping in mappings if mapping.start <= instruction < mapping.end), None)
        for instruction in (counter, auxiliary.get(_ENTRY, 0))
    )
    return CoreNotes(
        address=address if code > 0 else None,
        location=f"{Path(place.file).name}+{counter - place.start + place.offset:#x}" if place else "",
        executable=program.file if program else "",
    )


def _is_core(path: Path) -> bool:
    with suppress(OSError), path.open("rb") as file:
        header = file.read(_HEADER.size)
        return header.startswith(_ELF64) and header[16:18] == struct.pack("<H", _CORE)
    return False


def _notes_of(file: BinaryIO) -> tuple[int, bytes]:
    """Return the machine's number and the bytes of all notes. Raises struct.error, ValueError."""
    header = _HEADER.unpack(file.read(_HEADER.size))
    if not header[0].startswith(_ELF64) or header[1] != _CORE:
        raise ValueError("no core of a 64-bit machine")
    file.seek(header[5])
    for _ in range(min(header[10], 64)):
        kind, _, offset, _, _, size, _, _ = _PROGRAM_HEADER.unpack(file.read(_PROGRAM_HEADER.size))
        if kind == _NOTE:
            file.seek(offset)
            return header[2], file.read(min(size, 16 << 20))
    raise ValueError("a core without notes")


def _each(notes: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (name_size + 3 & ~3)
        if start + size > len(notes):
            return
        yield kind, notes[start : start + size]
        at = start + (size + 3 & ~3)


def _mappings(content: bytes) -> Iterator[CoreMapping]:
    count, page = struct.unpack_from("<QQ", content)
    if 16 + count * 24 > len(content):
        return
    ranges = struct.iter_unpack("<QQQ", content[16 : 16 + count * 24])
    for (start, end, offset), name in zip(ranges, content[16 + count * 24 :].split(b"\0"), strict=False):
        yield CoreMapping(start, end, offset * page, name.decode("utf-8", "replace"))


def allow_core(box: Path, ranks: int, environment: Mapping[str, str]) -> None:
    """Let this process and its children write a bounded core file, where the file can be read afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if soft != 0 or hard == 0 or core_location(working_folder(box)) is None:
        return  # a limit that was set before stays
    size = MAX_CORE_BYTES if shutil.which("gdb", path=environment.get("PATH")) else MIN_CORE_BYTES
    limit = min(size, shutil.disk_usage(box).free // (_DISK_DIVISOR * max(1, ranks)))
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (limit if hard < 0 else min(limit, hard), hard))
        # Private memory and ELF headers, no shared memory.
        Path("/proc/self/coredump_filter").write_text("0x11\n")


def disable_core(pid: int) -> None:
    """Prevent another process from writing a core file: it is only asked for its Python stack."""
    with suppress(OSError, ValueError):
        hard = resource.prlimit(pid, resource.RLIMIT_CORE)[1]
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, hard))


def bounds_cores() -> bool:
    """Tell whether cores exist because of `allow_core`: this process started with the limit 0."""
    return resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
