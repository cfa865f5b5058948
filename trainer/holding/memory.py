"""Memory: a slot that uses more than its share loses its largest process, and its neighbours nothing.

A rented container cannot make cgroups of its own, so somebody has to look.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer.contract import layout
from trainer.contract.records import write_atomically
from trainer.holding.processes import PROC, Process, of_box

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPARED = ("bash", "sh", "sleep")
"""The lease and run.sh: small, and needed to the end."""


@dataclass(frozen=True, kw_only=True)
class Excess:
    """A slot that used more than it may, and the process that was killed for it."""

    used_mib: int
    limit_mib: int
    pid: int
    name: str

    @property
    def text(self) -> str:
        """What happened, in words."""
        used, limit = f"{self.used_mib / 1024:.1f}", f"{self.limit_mib / 1024:.1f}"
        return (
            f"{used} GiB of memory in use of {limit} GiB for this slot: {self.name} ({self.pid}) was killed"
        )


def hold_to_limit(
    folder: Path, limit_mib: int, processes: Mapping[int, Process], proc: Path = PROC
) -> Excess | None:
    """Kill the slot's largest process when all of them use more than the limit; None: they do not.

    Pages that several processes share are counted once. That takes long to find out, so it is looked at only
    where the simple sum is over the limit.
    """
    pids = of_box(processes, folder)
    if sum(_resident(pid, proc) for pid in pids) <= limit_mib << 20:
        return None
    sizes = {pid: _proportional(pid, proc) for pid in pids}
    used = sum(sizes.values())
    victims = [pid for pid in pids if processes[pid].name not in _SPARED] or list(pids)
    if used <= limit_mib << 20 or not victims:
        return None
    victim = max(victims, key=lambda pid: (sizes[pid], pid))
    note_kill(folder, used, limit_mib << 20)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(victim, signal.SIGKILL)
    return Excess(used_mib=used >> 20, limit_mib=limit_mib, pid=victim, name=processes[victim].name)


def note_kill(folder: Path, used: int, limit: int) -> None:
    """Count a kill for want of memory where the slot's supervisor looks, as the kernel counts its own.

    `used` and `limit` are bytes.

    Before the kill: who sees the process end must find the reason.
    """
    with contextlib.suppress(OSError):
        events = f"oom_kill {kills_noted(folder) + 1}\npeak {used}\nlimit {limit}\n"
        write_atomically(folder / layout.MEMORY_EVENTS, events, durable=False)


def kills_noted(folder: Path) -> int:
    """Return how many were counted."""
    return sum(_counts(folder, ("oom_kill",)))


def _counts(folder: Path, names: Iterable[str]) -> list[int]:
    with contextlib.suppress(OSError, ValueError):
        lines = (folder / layout.MEMORY_EVENTS).read_text().splitlines()
        return [int(value) for name, value in (line.split() for line in lines) if name in names]
    return []


def _resident(pid: int, proc: Path) -> int:
    """Return the bytes in memory, shared ones included; 0 where it has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((proc / str(pid) / "statm").read_text().split()[1]) * _PAGE
    return 0


def _proportional(pid: int, proc: Path) -> int:
    """Return the bytes in memory, of shared ones its part; as `_resident` where the kernel does not say."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in (proc / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return _resident(pid, proc)
