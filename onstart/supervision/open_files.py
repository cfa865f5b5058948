"""Open files: what the processes of this run have open or mapped for writing, and a short stop of them.

Linux, standard library only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from vastrun.onstart.supervision.processes import descendants, open_files, stat_fields

_CONTINUE = 'while read -r pid; do all="$all $pid"; done; kill -CONT $all'
"""Shell that lets the processes go on when its input ends, also if the supervisor is killed meanwhile."""

FileId = tuple[int, int]
"""Device and inode."""


@dataclass(frozen=True, kw_only=True)
class OpenFiles:
    """Files below the box that processes of this run may write to."""

    written: frozenset[FileId]
    appended: frozenset[FileId]
    """Opened to append only."""
    mapped: frozenset[FileId]
    """Mapped, shared and writable: their times do not show every write."""

    @classmethod
    def of_descendants(cls, box: Path) -> OpenFiles:
        """Read what all processes below this one have open. Those of other users are passed over."""
        written, appended, mapped = set[FileId](), set[FileId](), set[FileId]()
        inside = f"{box}/"
        for pid in descendants(os.getpid()):
            process = Path(f"/proc/{pid}")
            for number in (number for number, path in open_files(pid) if path.startswith(inside)):
                with suppress(OSError, LookupError, ValueError):
                    lines = (process / "fdinfo" / number).read_text().splitlines()
                    flags = int(next(one for one in lines if one.startswith("flags:")).split()[1], 8)
                    if flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR):
                        found = (process / "fd" / number).stat()
                        group = appended if flags & os.O_APPEND else written
                        group.add((found.st_dev, found.st_ino))
            with suppress(OSError):
                mapped |= set(_mapped(process, inside))
        return cls(written=frozenset(written), appended=frozenset(appended), mapped=frozenset(mapped))


def _mapped(process: Path, inside: str) -> Iterator[FileId]:
    for line in (process / "maps").read_text(errors="replace").splitlines():
        parts = line.split(None, 5)
        if len(parts) == 6 and parts[1][1] == "w" and parts[1][3] == "s" and parts[5].startswith(inside):
            with suppress(OSError):
                found = Path(parts[5]).stat()
                yield found.st_dev, found.st_ino


@contextmanager
def stopped_program() -> Iterator[None]:
    """Stop all processes below this one for as long as the block runs; a write that has begun ends first.

    Raises TimeoutError, an OSError, when one does not stop.
    """
    guard = subprocess.Popen(
        ["sh", "-c", _CONTINUE], stdin=subprocess.PIPE, text=True, bufsize=1, start_new_session=True
    )
    assert guard.stdin is not None
    held: list[int] = [guard.pid]
    deadline = time.monotonic() + 0.5
    try:
        # They may start others meanwhile.
        while new := [pid for pid in descendants(os.getpid()) if pid not in held]:
            for pid in new:
                held.append(pid)
                guard.stdin.write(f"{pid}\n")
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            while not all(map(_is_stopped, held[1:])):
                if time.monotonic() > deadline:
                    raise TimeoutError("a process of the program does not stop: it waits for its disk")
                time.sleep(0.0005)
        yield
    finally:
        for pid in held[1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        guard.stdin.close()
        guard.wait()


def _is_stopped(pid: int) -> bool:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            if stat_fields(task)[0] not in b"TtZX":
                return False
    return True
