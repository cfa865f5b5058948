"""Cleanliness: removes and reports what ended slots left on a machine, before it accepts the next slot.

A machine whose state is unknown is not clean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from vastrun.contract import layout
from vastrun.onstart.holding.machine import (
    SCRATCH,
    HeldBox,
    Process,
    gpus_in_use,
    list_processes,
    open_paths,
    scratch_files,
    with_descendants,
)
from vastrun.onstart.supervision.processes import send

_WAIT_S = 20.0
"""Seconds to wait for free GPU memory: after its process has ended, a large GPU takes seconds to clear it."""
_MAX_SHOWN = 3


def clean_up(
    box: Path,
    machine: HeldBox,
    active: Collection[str],
    *,
    busy_gpus: Collection[str] = (),
    wait_s: float = _WAIT_S,
    scratch: Sequence[Path] = SCRATCH,
) -> tuple[str, ...]:
    """Kill and remove what ended slots left. Return a text for each thing that is left nevertheless.

    `active`: names of the existing slots. `busy_gpus`: UUIDs of their GPUs.
    """
    deadline = time.monotonic() + wait_s
    is_again = False
    while True:
        faults = tuple(_remove_left(box, machine, active, busy_gpus, scratch))
        # Again, although it was removed: a process may have started another one meanwhile.
        if not faults or (is_again and time.monotonic() > deadline):
            return faults
        is_again = True
        time.sleep(0.1)


def _remove_left(
    box: Path, machine: HeldBox, active: Collection[str], busy_gpus: Collection[str], scratch: Sequence[Path]
) -> Iterator[str]:
    """Kill and remove what ended slots left, and yield a text for each thing that was there."""
    processes = list_processes()
    left, holders = (find(box, active, processes) for find in (leftover_processes, leftover_file_holders))
    # Where others use the machine, too, the user may work in the folder.
    for pid in left | holders if machine.is_dedicated else left:
        send(pid, signal.SIGKILL)
    if left | holders:
        yield f"still running: {_named(processes, left | holders)}"
    # Those of ended or incomplete slots.
    kept, slots = (*active, Path(layout.SLOT_ORDERS).name), box / layout.SLOTS
    folders = sorted(path for path in slots.glob("*") if path.is_dir() and path.name not in kept)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    if folders:
        yield f"not removed: {', '.join(path.name for path in folders[:_MAX_SHOWN])}"
    yield from _gpu_faults(machine, busy_gpus)
    unknown = unknown_processes(machine, processes, box) - left - holders if machine.processes else ()
    if unknown:
        yield f"unknown processes: {_named(processes, unknown)}"
    files = leftover_scratch_files(machine, scratch) if machine.is_dedicated and not active else []
    for path in files:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
    if files:
        yield f"left behind: {', '.join(map(str, files[:_MAX_SHOWN]))}"


def leftover_processes(box: Path, active: Collection[str], processes: Mapping[int, Process]) -> set[int]:
    """Return the processes of ended slots, by their environment, and their descendants."""
    slots = box / layout.SLOTS
    named = {pid: _slot_named(process, slots) for pid, process in processes.items()}
    gone = with_descendants(processes, (pid for pid, name in named.items() if name not in (None, *active)))
    used = with_descendants(processes, (pid for pid, name in named.items() if name in active))
    return gone - used - {os.getpid()}


def leftover_file_holders(box: Path, active: Collection[str], processes: Mapping[int, Process]) -> set[int]:
    """Return the processes that work in the folder of an ended slot, or hold a file of it open.

    This finds a process that left its session and cleared its environment.
    """
    slots = f"{(box / layout.SLOTS).resolve()}/"

    def is_in_ended_slot(link: str) -> bool:
        name = link[len(slots) :].partition("/")[0]
        # Not the lock or the requests, whose names begin with a dot.
        return link.startswith(slots) and not name.startswith(".") and name not in active

    return {pid for pid in processes if any(map(is_in_ended_slot, open_paths(pid)))} - {os.getpid()}


def unknown_processes(machine: HeldBox, processes: Mapping[int, Process], box: Path) -> set[int]:
    """Return the processes of unknown origin on a dedicated machine.

    Known are the processes from before the first slot, those of the box and its slots, their descendants,
    and processes started from outside (`docker exec`), which have no parent here.
    """
    roots = {
        pid
        for pid, process in processes.items()
        if (pid != 1 and process.identity in machine.processes)
        or process.parent == 0
        or process.box == str(box)
        or _slot_named(process, box / layout.SLOTS) is not None
    }
    # An orphan becomes a child of the first process, which says nothing about its origin.
    known = (
        with_descendants({pid: each for pid, each in processes.items() if pid not in roots}, roots - {1})
        | roots
    )
    return set(processes) - known - {1, os.getpid()}


def leftover_scratch_files(machine: HeldBox, folders: Sequence[Path]) -> list[Path]:
    """Return the files in the scratch folders that are newer than the first slot and not open."""
    links = {link.removesuffix(" (deleted)") for pid in list_processes() for link in open_paths(pid)}
    held = {path for link in map(Path, links) for path in (link, *link.parents)}
    return sorted(scratch_files(folders) - set(map(Path, machine.scratch)) - held)


def _gpu_faults(machine: HeldBox, busy: Collection[str]) -> Iterator[str]:
    """Yield a text for each GPU without a slot that is in use or missing."""
    if not machine.gpus:
        return
    now = gpus_in_use(",".join(machine.gpus))
    for gpu, before in zip(machine.gpus, machine.gpu_used_mib, strict=False):
        if gpu in busy:
            continue
        if gpu not in now:
            yield f"{gpu} is no longer visible"
        elif now[gpu] > before + 64:
            yield f"{now[gpu]} MiB of {gpu} are in use"


def _slot_named(process: Process, slots: Path) -> str | None:
    """Return the slot in the environment of a process; None: no slot of this machine."""
    name = process.box.removeprefix(f"{slots}/")
    return None if name == process.box else name


def _named(processes: Mapping[int, Process], pids: Collection[int]) -> str:
    shown = sorted(pids)[:_MAX_SHOWN]
    return ", ".join(f"{processes[pid].name} ({pid})" for pid in shown)
