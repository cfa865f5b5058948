"""Cleanliness: what a slot that is gone has left on the machine. Nothing: the machine may take the next one.

What cannot be told is not clean.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from vastrun.contract import layout
from vastrun.trainer.holding.machine import SCRATCH, HeldBox, gpus_in_use, scratch_files
from vastrun.trainer.holding.processes import Process, below, holders_of, is_below, links_of, table

_GPU_SLACK_MIB = 64
"""What a driver keeps for itself may change by so much."""
_WAIT_S = 20.0
"""A GPU's memory is free some time after its process has ended; a large one takes seconds to be cleared."""
_PAUSE_S = 0.1
_ORDERS = Path(layout.SLOT_ORDERS).name
_SHOWN = 3


def clean_up(
    box: Path,
    machine: HeldBox,
    living: Collection[str],
    *,
    busy_gpus: Collection[str] = (),
    wait_s: float = _WAIT_S,
    scratch: Sequence[Path] = SCRATCH,
) -> tuple[str, ...]:
    """End and remove what slots that are gone have left. Return what is left nevertheless, in words.

    `living`: the names of the slots that are there. `busy_gpus`: those that belong to them.
    """
    deadline = time.monotonic() + wait_s
    while True:
        # Again with each look: a process may have started another, or its program, during the last one.
        _remove_what_is_left(box, machine, living, scratch)
        faults = tuple(_faults(box, machine, living, busy_gpus, scratch))
        if not faults or time.monotonic() > deadline:
            return faults
        time.sleep(_PAUSE_S)


def _remove_what_is_left(
    box: Path, machine: HeldBox, living: Collection[str], scratch: Sequence[Path]
) -> None:
    processes = table()
    left = left_running(box, living, processes)
    if machine.is_ours:  # elsewhere it may be the user, who looks into the folder
        left |= left_holding(box, living, processes)
    for pid in left:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    for folder in left_folders(box, living):
        shutil.rmtree(folder, ignore_errors=True)
    if machine.is_ours and not living:
        _remove(left_in_scratch(machine, scratch))


def _faults(
    box: Path,
    machine: HeldBox,
    living: Collection[str],
    busy_gpus: Collection[str],
    scratch: Sequence[Path],
) -> Iterator[str]:
    processes = table()
    left = left_running(box, living, processes) | left_holding(box, living, processes)
    if left:
        yield f"still running: {_named(processes, left)}"
    folders = left_folders(box, living)
    if folders:
        yield f"not removed: {', '.join(path.name for path in folders[:_SHOWN])}"
    yield from _gpu_faults(machine, busy_gpus)
    strangers = foreign(machine, processes, box) - left if machine.processes else ()
    if strangers:
        yield f"started by nobody that is known: {_named(processes, strangers)}"
    if machine.is_ours:
        files = [] if living else left_in_scratch(machine, scratch)
        if files:
            yield f"left behind: {', '.join(map(str, files[:_SHOWN]))}"


def left_running(box: Path, living: Collection[str], processes: Mapping[int, Process]) -> set[int]:
    """Return the processes of slots that are gone, by their environment, and all that descend from them."""
    slots = box / layout.SLOTS
    named = {pid: _slot_named(process, slots) for pid, process in processes.items()}
    gone = below(processes, (pid for pid, name in named.items() if name not in (None, *living)))
    kept = below(processes, (pid for pid, name in named.items() if name in living))
    return gone - kept - {os.getpid()}


def left_holding(box: Path, living: Collection[str], processes: Mapping[int, Process]) -> set[int]:
    """Return the processes that work in a slot that is gone, or hold a file of it open.

    One that left its session and cleared its environment is found by this.
    """
    slots = (box / layout.SLOTS).resolve()
    holding = holders_of(processes, slots)
    return {pid for pid in holding if any(_is_of_the_gone(link, slots, living) for link in links_of(pid))} - {
        os.getpid()
    }


def _is_of_the_gone(link: str, slots: Path, living: Collection[str]) -> bool:
    """Tell whether this lies in a slot that is gone. Others: the lock, orders."""
    name = link.removeprefix(f"{slots}/").partition("/")[0]
    return is_below(link, slots) and link != str(slots) and not name.startswith(".") and name not in living


def foreign(machine: HeldBox, processes: Mapping[int, Process], box: Path) -> set[int]:
    """Return the processes that nobody known has started, on a machine that is ours alone.

    Known are those that ran before the first slot, those of the box and of its slots, who descends from
    them, and what was put there from outside (`docker exec`), which has no parent here.
    """
    folder = str(box)
    roots = {
        pid
        for pid, process in processes.items()
        if (pid != 1 and process.mark in machine.processes)
        or process.parent == 0
        or process.has("VASTRUN_BOX", folder)
        or _slot_named(process, box / layout.SLOTS) is not None
    }
    # What was adopted by the first process descends from it, and that says nothing.
    known = below({pid: each for pid, each in processes.items() if pid not in roots}, roots - {1}) | roots
    return set(processes) - known - {1, os.getpid()}


def left_in_scratch(machine: HeldBox, folders: Sequence[Path]) -> list[Path]:
    """Return the files in the scratch folders that were not there before the first slot, and that nobody
    holds open."""
    held = {link for pid in table() for link in links_of(pid)}
    found = scratch_files(folders) - set(map(Path, machine.scratch))
    return sorted(path for path in found if not any(is_below(link, path) for link in held))


def left_folders(box: Path, living: Collection[str]) -> list[Path]:
    """Return the folders of slots that are gone, or that were never whole."""
    with contextlib.suppress(OSError):
        paths = sorted(path for path in (box / layout.SLOTS).iterdir() if path.is_dir())
        return [path for path in paths if path.name not in living and path.name != _ORDERS]
    return []


def _gpu_faults(machine: HeldBox, busy: Collection[str]) -> Iterator[str]:
    """What is in use on GPUs that belong to no slot."""
    if not machine.gpus:
        return
    now = dict(zip(*gpus_in_use(",".join(machine.gpus))))
    for gpu, before in zip(machine.gpus, machine.gpu_used_mib):
        if gpu in busy:
            continue
        if gpu not in now:
            yield f"{gpu} is no longer seen"
        elif now[gpu] > before + _GPU_SLACK_MIB:
            yield f"{now[gpu]} MiB of {gpu} are in use"


def _slot_named(process: Process, slots: Path) -> str | None:
    """The slot that the process says it is of; None: of none on this machine."""
    _, found, rest = (b"\0" + process.environment).partition(f"\0VASTRUN_BOX={slots}/".encode())
    return rest.partition(b"\0")[0].decode(errors="replace") if found else None


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


def _named(processes: Mapping[int, Process], pids: Collection[int]) -> str:
    shown = sorted(pids)[:_SHOWN]
    return ", ".join(f"{processes[pid].name} ({pid})" for pid in shown)
