"""Native stacks: record the crash of a user's program in native code. Standard library only.

Where the kernel writes core files and the image has gdb: the stacks of all threads; without gdb the signal,
the address and the library. Python's stack is in the rank's log: PYTHONFAULTHANDLER is set. Cores are bounded
(`core_file.py`), and deleted afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import working_folder
from vastrun.onstart.optional_files import read_end
from vastrun.onstart.supervision import core_file
from vastrun.onstart.supervision.failure_causes import signal_of
from vastrun.onstart.supervision.rank_process import RankProcess
from vastrun.onstart.supervision.stacks import main_thread, top_frame

CRASHES = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGILL", "SIGFPE")
GDB_S = 90.0
"""Timeout for all ranks: gdb reads the symbols of torch first."""
_MAX_OUTPUT = 1 << 18
_FRAME = re.compile(
    r"#\d+ +(?:0x[0-9a-f]+ in )?(?P<function>.+?) \(.*?(?: from (?P<library>\S+)| at (?P<line>\S+))?$"
)
_STACK_LINE = re.compile(r"#\d+ |Thread \d+ |Program terminated |warning: core file may not match")
_RAISES = frozenset(
    {"raise", "abort", "__GI_raise", "__GI_abort", "gsignal", "pthread_kill", "__pthread_kill"}
)


def keep_native_stacks(
    box: Path,
    processes: Iterable[RankProcess],
    *,
    since: float,
    exclude: Collection[int] = (),
    location: core_file.CoreLocation | None = None,
    is_stopping: Callable[[], bool] = lambda: False,
) -> int:
    """Write `run/stacks/rank-N.native.txt` for each rank that crashed on its own, and delete the cores.

    Returns the number of deleted cores; gdb is killed when `is_stopping` returns True. `since`: epoch seconds
    at which the ranks were started. `exclude`: ranks that did not crash on their own.
    """
    location = location or core_file.core_location(working_folder(box))
    crashed = [p for p in processes if signal_of(p.exit_code) in CRASHES and p.rank not in exclude]
    deadline = time.monotonic() + GDB_S

    def is_over() -> bool:
        return time.monotonic() > deadline or is_stopping()

    for process in sorted(crashed, key=lambda p: p.ended_at or 0.0):
        core = location.find(process.pid, since) if location else None
        with suppress(OSError):  # a full disk
            _write(box, process, core, is_over)
    return location.delete(since) if location and core_file.bounds_cores() else 0


def read_crash(box: Path, rank: int) -> tuple[str, str | None]:
    """Return a line on the place of a rank's crash, and its first stacks; `("", None)`: it has no record."""
    path = native_file(box, rank)
    with suppress(OSError), path.open(encoding="utf-8", errors="replace") as file:
        headline, _, text = file.read(4000).partition("\n")
        where = headline.partition(" ")[2]  # after the signal
        return "; ".join(filter(None, (where, f"stacks: details/stacks/{path.name}"))), text.strip()
    return "", None


def native_file(box: Path, rank: int) -> Path:
    """Return the path of the file with a rank's stacks."""
    return box / layout.STACKS / f"rank-{rank}.native.txt"


def _write(box: Path, process: RankProcess, core: Path | None, is_over: Callable[[], bool]) -> None:
    # What faulthandler printed, innermost first.
    log = read_end(box / layout.RAW_LOGS / f"rank-{process.rank}.log", _MAX_OUTPUT)
    _, found, fatal = log.decode("utf-8", errors="replace").rpartition("Fatal Python error")
    frames = main_thread(fatal if found else "")
    top = top_frame(frames)
    shown = [frame.text(box) for frame in frames[:12]]
    # The user's innermost frame comes first: the top of the stack is often a library.
    python = [top.text(box), *shown] if top is not None and shown[:1] != [top.text(box)] else shown
    notes = core_file.read_notes(core) if core else core_file.CoreNotes()
    stack = _gdb_stack(core, notes, is_over) if core else ""
    where = [top for top in (top_native_frame(stack), *python[:1]) if top]
    if not where and notes.location:
        where = [notes.location]
    address = f" at address {notes.address:#x}" if notes.address is not None else ""
    headline = address + (f" in {', called by '.join(where)}" if where else "")
    parts = [
        f"{signal_of(process.exit_code)}{headline}"[:300],
        f"Native stack (gdb):\n{stack}" if stack else _missing_stack_text(core, notes),
    ]
    if python:
        parts.append("Python stack:\n" + "\n".join(f"  {frame}" for frame in python))
    path = native_file(box, process.rank)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(c if c.isprintable() or c == "\n" else "?" for c in "\n\n".join(parts))
    path.write_text(f"{text}\n", encoding="utf-8")


def _missing_stack_text(core: Path | None, notes: core_file.CoreNotes) -> str:
    """Return the reason for a missing native stack."""
    if core is None:
        return "There is no native stack: no core file was found."
    read = f" The instruction was in {notes.location}." if notes.location else ""
    if shutil.which("gdb"):
        size = core.stat().st_size >> 20
        return (
            f"There is no native stack: gdb found none in {GDB_S:.0f} s in a core file of {size} MiB.{read}"
        )
    return f"There is no native stack: the image has no gdb (apt-get install gdb in `setup`).{read}"


def _gdb_stack(core: Path, notes: core_file.CoreNotes, is_over: Callable[[], bool]) -> str:
    """Return the stacks, the crashed thread's first; empty where gdb is missing or too slow."""
    gdb = shutil.which("gdb")
    if gdb is None or is_over():
        return ""
    commands = ("set print frame-arguments none", "backtrace 60", "thread apply all backtrace 30")
    asked = [word for command in commands for word in ("-ex", command)]
    program = [notes.executable] if Path(notes.executable).is_file() else []
    environment = {**os.environ, "DEBUGINFOD_URLS": "", "LC_ALL": "C"}
    with subprocess.Popen(
        [gdb, "-nx", "-batch", "-q", *asked, *program, "-c", str(core)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
    ) as process:
        threading.Thread(target=_kill_when, args=(process, is_over), daemon=True).start()
        assert process.stdout is not None
        text = process.stdout.read(_MAX_OUTPUT).decode("utf-8", errors="replace")
        process.kill()
    return "\n".join(line for line in text.splitlines() if _STACK_LINE.match(line))


def _kill_when(process: subprocess.Popen[bytes], is_over: Callable[[], bool]) -> None:
    while process.poll() is None:
        if is_over():
            process.kill()
        time.sleep(0.2)


def top_native_frame(stack: str) -> str:
    """Return the innermost frame of the crashed thread, without its signal handlers."""
    lines = stack.partition("\nThread ")[0].splitlines()
    frames = [line for line in lines if line.startswith("#")]
    handlers = [number for number, line in enumerate(frames) if "<signal handler called>" in line]
    for line in frames[handlers[-1] + 1 :] if handlers else frames:
        found = _FRAME.match(line)
        if found is None or found["function"] in ("??", *_RAISES) or "pthread_kill" in found["function"]:
            continue
        library = found["library"] or found["line"]
        return f"{found['function']} ({Path(library).name})" if library else found["function"]
    return ""
