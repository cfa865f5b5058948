"""Held machine: its resources to divide among slots, its processes, and its state before the first slot."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.records import read_json
from vastrun.onstart.boot.preflight.nvidia_smi import number, rows_if_known
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.supervision.processes import ZOMBIE, environ_of, name_of, open_files, process_table

PROC = Path("/proc")
SCRATCH = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"))
"""Folders in which programs leave files outside of their box."""


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process at the time of one poll."""

    parent: int
    name: str
    identity: str
    """Its pid and its start in ticks since boot, which distinguishes processes with a reused pid."""
    box: str = ""
    """The box that its environment names; empty where that cannot be read, for instance of another user."""


def list_processes() -> dict[int, Process]:
    """Return every living process by its pid."""
    return {
        pid: Process(
            parent=int(fields[1]),
            name=name_of(pid),
            identity=f"{pid} {fields[19].decode()}",
            box=environ_of(pid).get("VASTRUN_BOX", ""),
        )
        for pid, fields in process_table().items()
        if fields[0] != ZOMBIE
    }


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
    return with_descendants(processes, (pid for pid, process in processes.items() if process.box == str(box)))


def open_paths(pid: int) -> set[str]:
    """Return the paths that a process has open or mapped, works in, or runs; none of another user's."""
    here = PROC / str(pid)
    found: set[str] = set()
    for name in ("cwd", "exe", "root"):
        with contextlib.suppress(OSError):
            found.add(str((here / name).readlink()))
    found |= {path for _, path in open_files(pid)}
    with contextlib.suppress(OSError):
        # Thousands of lines of a process that has torch; a path is the only part of one that has a slash.
        lines = (here / "maps").read_text(errors="surrogateescape").splitlines()
        found |= {line[at:] for line in lines if (at := line.find("/")) >= 0}
    return found


@dataclass(frozen=True, kw_only=True)
class HeldBox:
    """A machine at the start of the hold. Written once, to `slots/.machine.json`."""

    units: int
    """Number of equal parts into which it is divided; a slot has one or more of them."""
    cores: tuple[int, ...]
    memory_mib: int
    gpus: tuple[str, ...] = ()
    """UUIDs of the GPUs that are divided, one for each of the first units."""
    gpu_used_mib: tuple[int, ...] = ()
    """Memory in use on each GPU before the first slot."""
    is_dedicated: bool = False
    """True when the whole machine was rented for this box, like a container: no other user starts
    programs."""
    processes: tuple[str, ...] = ()
    """Identities of the processes that ran then; empty on a machine with other users."""
    scratch: tuple[str, ...] = ()
    """Files that were in the scratch folders then."""

    @classmethod
    def read(cls, box: Path) -> HeldBox | None:
        """Read the record; None when the machine is not held yet. Raises ValueError when it is malformed."""
        try:
            return read_json(cls, (box / layout.HELD_MACHINE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def cores_of(self, units: Iterable[int]) -> tuple[int, ...]:
        """Return the cores of these units; with fewer cores than units, some units share one."""
        found: set[int] = set()
        for unit in units:
            first = unit * len(self.cores) // self.units
            last = max(first + 1, (unit + 1) * len(self.cores) // self.units)
            found |= set(self.cores[first:last])
        return tuple(sorted(found))

    def memory_of(self, units: Sequence[int], requested_gb: float) -> int:
        """Return the MiB of memory of a slot: the share of its units, or less if requested."""
        share = self.memory_mib * len(units) // self.units
        return min(share, int(requested_gb * 1e9 / (1 << 20))) if requested_gb else share


def measure_machine(units: int, gpus: int, environ: Mapping[str, str]) -> HeldBox:
    """Measure the machine. `gpus`: number of its GPUs that are divided, one per unit."""
    used_mib = gpus_in_use(environ.get("CUDA_VISIBLE_DEVICES")) if gpus else {}
    is_dedicated = is_dedicated_container(environ, environ_of(1))
    identities = {process.identity for process in list_processes().values()} if is_dedicated else ()
    limits = ("memory.max", "memory/memory.limit_in_bytes")
    sizes = [number_in(Path("/sys/fs/cgroup", name)) or 0 for name in limits]
    sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return HeldBox(
        units=units,
        cores=tuple(sorted(os.sched_getaffinity(0))),
        memory_mib=min(size for size in sizes if size > 0) >> 20,
        gpus=tuple(used_mib)[:gpus],
        gpu_used_mib=tuple(used_mib.values())[:gpus],
        is_dedicated=is_dedicated,
        processes=tuple(sorted(identities)),
        scratch=tuple(sorted(map(str, scratch_files()))) if is_dedicated else (),
    )


def is_dedicated_container(environ: Mapping[str, str], first: Mapping[str, str]) -> bool:
    """Tell whether this container was created for this box: its first process has the box's name.

    `first`: the environment of that process.

    The provider's name is not enough: Vast may be an emulator on the user's computer, where nothing outside
    of the box may be touched.
    """
    name, provider = environ.get("CONTAINER_ID"), environ.get("VASTRUN_PROVIDER")
    return bool(name) and provider in ("vast", "docker") and name == first.get("CONTAINER_ID")


def gpus_in_use(visible: str | None) -> dict[str, int]:
    """Return the MiB in use on each visible GPU, by its UUID; empty without a GPU.

    `visible`: the value of CUDA_VISIBLE_DEVICES; None: all GPUs.
    """
    rows = rows_if_known("--query-gpu", ("index", "uuid", "memory.used"))
    if visible is not None:
        chosen = [each.strip() for each in visible.split(",") if each.strip()]
        rows = [row for row in rows if row[0] in chosen or any(row[1].startswith(each) for each in chosen)]
    return {uuid: number(used) or 0 for _, uuid, used in rows}


def scratch_files(folders: Iterable[Path] = SCRATCH) -> set[Path]:
    """Return the files and folders directly in the scratch folders."""
    return {path for folder in folders for path in folder.glob("*")}
