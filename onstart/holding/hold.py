"""Hold: keeps the machine for slots and watches them, until a stop request or the idle timeout.

If a slot uses more memory than its share, its largest process is killed, without harm to other slots. A
rented container cannot create cgroups, so the holder polls the memory use.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.outcome import REASONS, Outcome, Reason
from vastrun.contract.records import write_atomically, write_json
from vastrun.contract.stop_budget import SUPERVISOR_SAVING_S
from vastrun.onstart.holding.machine import PROC, Process, box_processes, list_processes
from vastrun.onstart.holding.slots import BoxSlot, drain, drain_reason, slot_lock, slots_of
from vastrun.onstart.optional_files import read_text
from vastrun.onstart.supervision.processes import send
from vastrun.onstart.supervision.reading import count

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPARED = ("bash", "sh", "sleep")
"""Programs that are never killed: the lease and run.sh, which are small and needed to the end."""

_STOP_S = SUPERVISOR_SAVING_S + 20.0
"""Seconds for slots to save and be collected after a stop request: less than the timeout of `step.sh`."""


class Holder:
    """Watches the slots of one machine. `idle_s`: seconds without a slot until the machine ends."""

    def __init__(
        self, box: Path, *, idle_s: float, say: Callable[[str], None], now: Callable[[], float]
    ) -> None:
        self._box, self._idle_s, self._say, self._now = box, idle_s, say, now
        self._asked = False
        self._idle_since = now()
        self._status_at = 0.0
        self._stop_at: float | None = None
        self._slots_before: frozenset[str] = frozenset()

    def request_end(self, *_: object) -> None:
        """Request the end of the machine; the handler of SIGTERM."""
        self._asked = True

    def poll(self) -> str | None:
        """Poll all slots once. Return why the machine ends; None: it continues."""
        slots = slots_of(self._box)
        self._watch(slots)
        if self._now() - self._status_at >= 1.0:
            self._status_at = self._now()
            write_json(
                self._box / layout.STATUS,
                {"at": time.time(), "step": 0, "steps": 0, "loss": None, "ranks": []},
                durable=False,
            )
        if slots:
            self._idle_since = self._now()
        if self._asked or (self._box / layout.STOP).exists():
            why = read_text(self._box / layout.STOP).partition("\n")[0].strip() or "stopped"
            reason = drain(self._box, f"the machine is ending: {why}")
            if self._stop_at is None:
                self._stop_at = self._now()
            # The request is for the machine: nobody asked for the end of its slots, which lose their place.
            cause = "preempted" if why == "stopped" else why
            for slot in slots:  # including one that was just created
                request = self._box / layout.SLOTS / slot.name / layout.STOP
                if not request.exists():
                    write_atomically(request, f"{cause}\n", durable=False)
            over = self._now() - self._stop_at > _STOP_S
            return reason if over or not slots else None
        if reason := drain_reason(self._box):
            return None if slots else reason
        if self._now() - self._idle_since < self._idle_s:
            return None
        # Under the lock: a slot that is created meanwhile keeps the machine.
        with slot_lock(self._box):
            if slots_of(self._box):
                return None
            return drain(self._box, f"no slot was requested for {self._idle_s:.0f} s")

    def _watch(self, slots: list[BoxSlot]) -> None:
        processes = list_processes() if slots else {}
        for slot in slots:
            folder = self._box / layout.SLOTS / slot.name
            excess = enforce_memory_limit(folder, slot.memory_mib, processes)
            if excess is not None:
                self._say(f"{slot.name}: {excess}")
                # In one write, like all writers of that log.
                if (folder / layout.LOG).exists():
                    with (folder / layout.LOG).open("ab", buffering=0) as log:
                        log.write(f"{time.time():.3f} lease {excess}\n".encode())
        names = frozenset(slot.name for slot in slots)
        for name in sorted(names - self._slots_before):
            self._say(f"slot {name} is ready")
        for name in sorted(self._slots_before - names):
            self._say(f"slot {name} is removed")
        self._slots_before = names


def hold(box: Path, idle_s: float) -> int:
    """Hold the machine until it ends. Return the exit status of the step."""
    say = partial(print, flush=True)
    holder, began = Holder(box, idle_s=idle_s, say=say, now=time.monotonic), time.time()
    signal.signal(signal.SIGTERM, holder.request_end)
    while True:
        try:
            if (why := holder.poll()) is not None:
                break
            time.sleep(0.5)
        except OSError as error:  # a full disk must not end a machine with slots: its lease bounds it
            print(f"cannot watch the slots: {error}", flush=True)
            time.sleep(10.0)
    stop = read_text(box / layout.STOP).partition("\n")[0].strip()
    print(why, flush=True)
    reason: Reason = "stopped" if stop else "finished"
    outcome = Outcome(
        kind="hold",
        reason=reason,
        detail=why,
        started_at=began,
        ended_at=time.time(),
        world_size=0,
        ranks=(),
        stop_cause=stop or None,
    )
    write_atomically(box / layout.OUTCOME, outcome.to_json())
    return REASONS[reason].exit_code


def enforce_memory_limit(folder: Path, limit_mib: int, processes: Mapping[int, Process]) -> str | None:
    """Kill the slot's largest process if its processes exceed the limit, and return a line on it, else None.

    Pages that several processes share count once. That takes long to determine, so it is done only where the
    simple sum exceeds the limit.
    """
    pids = box_processes(processes, folder)
    if sum(map(_resident, pids)) <= limit_mib << 20:
        return None
    # Each with its part of the shared ones, where the kernel tells that.
    sizes = {pid: count("Pss:", (PROC / str(pid) / "smaps_rollup",)) << 10 or _resident(pid) for pid in pids}
    used = sum(sizes.values())
    victims = [pid for pid in pids if processes[pid].name not in _SPARED] or list(pids)
    if used <= limit_mib << 20 or not victims:
        return None
    victim = max(victims, key=lambda pid: (sizes[pid], pid))
    # The slot's supervisor reads it, in the kernel's format. Before the kill: it must find the reason at
    # the process's end.
    with contextlib.suppress(OSError):
        path = folder / layout.MEMORY_EVENTS
        kills = count("oom_kill", [path]) + 1
        write_atomically(path, f"oom_kill {kills}\npeak {used}\nlimit {limit_mib << 20}\n", durable=False)
    send(victim, signal.SIGKILL)
    memory = f"{used / (1 << 30):.1f} GiB of memory in use of {limit_mib / 1024:.1f} GiB for this slot"
    return f"{memory}: {processes[victim].name} ({victim}) was killed"


def _resident(pid: int) -> int:
    """Return the bytes in memory, including shared ones; 0 if the process has ended."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
    return 0
