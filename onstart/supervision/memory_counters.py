"""Memory counters: count processes killed for lack of memory, and read the peak use. Linux, standard library.

The kernel counts both for each cgroup; the holder of a machine counts them for each slot.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from vastrun.contract import layout
from vastrun.onstart.optional_files import number_in

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Bytes; cgroup v1 reports a larger number where there is no limit."""


def memory_kills(box: Path, proc: Path = _PROC, cgroups: Path = _CGROUPS, *, only_own: bool = False) -> int:
    """Count processes that were killed for lack of memory.

    By the kernel in this cgroup, else, unless `only_own`, on this computer; and by the holder of the machine
    in this slot.
    """
    names = ("memory.events", "memory.oom_control")
    kernel = [folder / name for folder in folders_of("memory", proc, cgroups) for name in names]
    kernel += [] if only_own else [proc / "vmstat"]
    return count("oom_kill", (box / layout.MEMORY_EVENTS,)) + count("oom_kill", kernel)


def memory_use(box: Path, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> str:
    """Say the peak use of this slot, else of this cgroup; empty where it has no limit or is unknown."""
    slot = (box / layout.MEMORY_EVENTS,)
    limit, peak = count("limit", slot), count("peak", slot)
    for folder in () if limit else folders_of("memory", proc, cgroups):
        limit = number_in(folder / "memory.max") or number_in(folder / "memory.limit_in_bytes") or 0
        peak = number_in(folder / "memory.peak") or number_in(folder / "memory.max_usage_in_bytes") or 0
        if limit and peak:
            break
    is_known = peak and 0 < limit < _UNLIMITED
    return f"peak memory {peak / (1 << 30):.1f} GiB of {limit / (1 << 30):.1f} GiB" if is_known else ""


def folders_of(controller: str, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> Iterator[Path]:
    """Yield the folders of this process's cgroup, v2 and v1, then the roots that a container sees."""
    with contextlib.suppress(OSError, ValueError):
        for line in (proc / "self" / "cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield cgroups / path.lstrip("/")
            elif controller in controllers.split(","):
                yield cgroups / controller / path.lstrip("/")
    yield cgroups
    yield cgroups / controller


def count(name: str, files: Iterable[Path]) -> int:
    """Return the named number from the first file that has it; 0 where none has."""
    for path in files:
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split()[:2] for line in path.read_text().splitlines())
            if name in counts:
                return int(counts[name])
    return 0
