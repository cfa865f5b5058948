"""The processes of a slot: by what their environment says, by their parents, and by what they hold open."""

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
    """A process as one look at it saw it."""

    pid: int
    parent: int
    name: str
    began: str
    """When, in ticks since the computer was started: a number that is used anew is another process."""
    environment: bytes = b""
    """Empty where it cannot be read: that of another user."""

    @property
    def mark(self) -> str:
        """What tells it from every other process of this computer."""
        return f"{self.pid} {self.began}"

    def has(self, variable: str, value: str) -> bool:
        """Tell whether its environment says so."""
        return f"\0{variable}={value}\0".encode() in b"\0" + self.environment

    def is_in(self, folder: Path) -> bool:
        """Tell whether its environment names the folder as its box."""
        return self.has("VASTRUN_BOX", str(folder))


def table(proc: Path = PROC) -> dict[int, Process]:
    """Return every living process by its number."""
    found = {}
    for entry in os.scandir(proc):
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                process = _read(Path(entry.path))
                if process is not None:
                    found[process.pid] = process
    return found


def marks_of(processes: Mapping[int, Process]) -> set[str]:
    """Return what tells each of them from every other process."""
    return {process.mark for process in processes.values()}


def below(processes: Mapping[int, Process], roots: Iterable[int]) -> set[int]:
    """Return these processes and all that descend from them."""
    found, grown = set(roots), True
    while grown:
        more = {pid for pid, process in processes.items() if process.parent in found and pid not in found}
        found |= more
        grown = bool(more)
    return found


def of_box(processes: Mapping[int, Process], box: Path) -> set[int]:
    """Return the processes that say that this folder is their box, and all that descend from them."""
    return below(processes, (pid for pid, process in processes.items() if process.is_in(box)))


def holders_of(processes: Mapping[int, Process], folder: Path, proc: Path = PROC) -> set[int]:
    """Return the processes that work in the folder or hold a file below it open, also one that is gone.

    One that cleared its environment and left its session is found by this. Those of other users cannot be
    looked into.
    """
    return {pid for pid in processes if any(is_below(link, folder) for link in links_of(pid, proc))}


def links_of(pid: int, proc: Path = PROC) -> set[str]:
    """Return the files and folders that a process holds open, works in, runs or has mapped."""
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
    """Tell whether what a process holds is the folder, or lies in it; it may be deleted by now."""
    path = link.removesuffix(_DELETED)
    return path == str(folder) or path.startswith(f"{folder}/")


def _read(here: Path) -> Process | None:
    """Return the process; None where it has ended and nobody has asked how. Raises OSError, ValueError."""
    # The name, in parentheses, may hold anything; what follows the last one is plain.
    text = (here / "stat").read_text(errors="replace")
    name, fields = text.partition("(")[2].rpartition(")")[0], text.rpartition(")")[2].split()
    if fields[0] == _ZOMBIE:
        return None
    environment = b""
    with contextlib.suppress(OSError):
        environment = (here / "environ").read_bytes()
    return Process(
        pid=int(here.name), parent=int(fields[1]), name=name, began=fields[19], environment=environment
    )
