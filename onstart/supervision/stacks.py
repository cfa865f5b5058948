"""Stacks: dump and parse the Python stacks of every rank. Standard library only.

In addition, a rank with NCCL writes its flight recorder with its current collectives.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.onstart.optional_files import size_of
from vastrun.onstart.supervision.core_file import disable_core
from vastrun.onstart.supervision.processes import descendants, send

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]{1,16}.*\(most recent call first\):$")
_LIBRARY = re.compile(r"/lib(64)?/python3\.\d+/((site|dist)-packages/)?|/(site|dist)-packages/")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')


@dataclass(frozen=True, kw_only=True)
class StackFrame:
    file: str
    line: str
    function: str

    def text(self, box: Path) -> str:
        """Format as `file:line function`, with a path relative to the box or to its library's folder."""
        file = self.file.removeprefix(f"{box}/")
        if file == self.file:
            file = file[max((found.end() for found in _LIBRARY.finditer(file)), default=0) :]
        return f"{file}:{self.line} {self.function}"

    def is_library(self) -> bool:
        """Tell whether it belongs to a library: neither the user's code nor vastrun."""
        return self.file.startswith("<") or _LIBRARY.search(self.file) is not None


def dump_stacks(box: Path, pids: Mapping[int, int], *, within_s: float) -> tuple[str, ...]:
    """Write the stacks of the ranks (pids by rank) to `run/stacks`; return the files.

    A rank that opened its stack file responds to SIGUSR1 and survives. Any other receives SIGABRT, and the
    dump that Python prints to its log is copied.
    """
    sources = {rank: _request_stack(box, rank, pid) for rank, pid in pids.items()}
    _wait_until_quiet(dict(sources.values()), within_s)
    written = []
    for rank, (path, offset) in sorted(sources.items()):
        name = f"{layout.STACKS}/rank-{rank}.txt"
        if path != box / name:
            with contextlib.suppress(OSError), path.open("rb") as file:  # no log, or a full disk
                file.seek(offset)
                text = file.read().decode("utf-8", errors="replace")
                _, fatal, dump = text.partition("Fatal Python error")
                if fatal:
                    (box / name).parent.mkdir(parents=True, exist_ok=True)
                    (box / name).write_text(fatal + dump, encoding="utf-8")
        if (box / name).is_file():
            written.append(name)
    return tuple(written)


def main_thread(text: str) -> tuple[StackFrame, ...]:
    """Return the frames of the main thread in the last dump of a text, innermost first."""
    threads: list[list[StackFrame]] = []
    for line in text.splitlines():
        if _THREAD.match(line):
            threads.append([])
        elif threads and (found := _FRAME.match(line)):
            threads[-1].append(StackFrame(**found.groupdict()))
    # Python lists its threads from the newest to the oldest; C++ threads have no frames.
    return next((tuple(frames) for frames in reversed(threads) if frames), ())


def top_frame(frames: Iterable[StackFrame]) -> StackFrame | None:
    """Return the innermost frame outside of libraries; without such a frame, the innermost one."""
    frames = tuple(frames)
    return next((f for f in frames if not f.is_library()), next(iter(frames), None))


def _request_stack(box: Path, rank: int, pid: int) -> tuple[Path, int]:
    """Request a rank's stacks; return the file in which they appear, and the offset."""
    file, number = box / layout.STACKS / f"rank-{rank}.txt", signal.SIGUSR1
    if not file.exists():
        file, number = box / layout.RAW_LOGS / f"rank-{rank}.log", signal.SIGABRT
        pid = _python_of(pid)
        disable_core(pid)
    size = size_of(file)
    send(pid, number)
    return file, size


def _python_of(pid: int) -> int:
    """Return the Python process at or below a process: a shell that started it has no Python stack."""
    for candidate in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{candidate}/exe").readlink().name.startswith("python"):
                return candidate
    return pid


def _wait_until_quiet(offsets: Mapping[Path, int], within_s: float) -> None:
    """Wait until every file has grown beyond its offset, and stopped growing."""
    changed_at = time.monotonic()
    deadline, sizes = changed_at + within_s, dict(offsets)
    while offsets and time.monotonic() < deadline:
        time.sleep(0.02)
        if (now := {path: size_of(path) for path in offsets}) != sizes:
            sizes, changed_at = now, time.monotonic()
        grown = all(sizes[path] > offset for path, offset in offsets.items())
        if grown and time.monotonic() - changed_at > 0.2:
            return


def dump_recorders(box: Path, ranks: Iterable[int], *, within_s: float) -> None:
    """Make the ranks write their flight recorders to `run/flight-recorder`, and wait for the files.

    A rank has a recorder once it has a process group of NCCL. Its watchdog polls the pipe once a second.
    """
    asked = [box / layout.FLIGHT_RECORDER / f"rank-{rank}" for rank in ranks if _request_recorder(box, rank)]
    _wait_until_quiet(dict.fromkeys(asked, 0), within_s)


def _request_recorder(box: Path, rank: int) -> bool:
    """Request a rank's flight recorder; return True when the rank reads its pipe."""
    with contextlib.suppress(OSError):
        pipe = os.open(box / layout.RECORDER_PIPES / f"rank-{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(pipe, b"1") == 1
        finally:
            os.close(pipe)
    return False
