"""Slot processes: find them by their environment, their parents, and their open files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_ZOMBIE = "Z"
_DELETED = " (deleted)"


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process at the time of one poll."""

    pid: int
    parent: int
    name: str
    started_ticks: str
    """Start time in ticks since boot, which distinguishes processes with a reused pid."""
    environment: bytes = b""
    """The environment; empty where it cannot be read, for instance of another user."""

    @property
    def identity(self) -> str:
        """Identity that no other process of this computer has."""
        return f"{self.pid} {self.started_ticks}"

    def has(self, variable: str, value: str) -> bool:
        """Tell whether its environment has this variable with this value."""
        return f"\0{variable}={value}\0".encode() in b"\0" + self.environment

    def is_in(self, folder: Path) -> bool:
        """Tell whether its environment names the folder as its box."""
        return self.has("VASTRUN_BOX", str(folder))


def list_processes(proc: Path = PROC) -> dict[int, Process]:
    """Return every living process by its pid."""
    found = {}
    for entry in os.scandir(proc):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                process = _read(Path(entry.path))
                if process is not None:
                    found[process.pid] = process
    return found


def identities_of(processes: Mapping[int, Process]) -> set[str]:
    """Return the identities of processes."""
    return {process.identity for process in processes.values()}


def with_descendants(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return these processes and all their descendants."""
    found, grown = set(roots), True
    while grown:
        more = {pid for pid, process in processes.items() if process.parent in found and pid not in found}
        found |= more
        grown = bool(more)
    return found


def box_processes(processes: Mapping[int, Process], box: Path) -> set[int]:
    """Return the processes whose environment names this box, and their descendants."""
    return with_descendants(processes, (pid for pid, process in processes.items() if process.is_in(box)))


def holders_of(processes: Mapping[int, Process], folder: Path, proc: Path = PROC) -> set[int]:
    """Return the processes that work in the folder or hold a file below it open, even a deleted one.

    This finds a process that cleared its environment and left its session. Processes of other users cannot
    be inspected.
    """
    return {pid for pid in processes if any(is_below(link, folder) for link in open_paths(pid, proc))}


def open_paths(pid: int, proc: Path = PROC) -> set[str]:
    """Return the paths that a process has open or mapped, works in, or runs."""
    here = proc / str(pid)
    found: set[str] = set()
    for name in ("cwd", "exe", "root"):
        with contextlib.suppress(OSError):
            found.add(str((here / name).readlink()))
    with contextlib.suppress(OSError):
        for entry in os.scandir(here / "fd"):
            with contextlib.suppress(OSError):
                found.add(str(Path(entry.path).readlink()))
    with contextlib.suppress(OSError):
        lines = (here / "maps").read_text(errors="surrogateescape").splitlines()
        found |= {parts[5] for line in lines if len(parts := line.split(None, 5)) == 6}
    return found


def is_below(link: str, folder: Path) -> bool:
    """Tell whether a path of a process is the folder or in it; it may be deleted by now."""
    path = link.removesuffix(_DELETED)
    return path == str(folder) or path.startswith(f"{folder}/")


def _read(here: Path) -> Process | None:
    """Return the process; None for a zombie. Raises OSError, ValueError."""
    # The name, in parentheses, may hold anything; the fields after the last one are plain.
    text = (here / "stat").read_text(errors="replace")
    name, fields = text.partition("(")[2].rpartition(")")[0], text.rpartition(")")[2].split()
    if fields[0] == _ZOMBIE:
        return None
    environment = b""
    with contextlib.suppress(OSError):
        environment = (here / "environ").read_bytes()
    return Process(
        pid=int(here.name),
        parent=int(fields[1]),
        name=name,
        started_ticks=fields[19],
        environment=environment,
    )
