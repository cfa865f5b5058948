"""hold(): the machine waits for slots and watches them, until it is told to end or nobody wants it.

A slot that uses more memory than its share loses its largest process, and its neighbours nothing. A rented
container cannot make cgroups of its own, so somebody has to look.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.outcome import Outcome, Reason
from vastrun.contract.records import write_atomically, write_json
from vastrun.contract.stop_budget import SUPERVISOR_SAVING_S
from vastrun.trainer.holding.processes import PROC, Process, of_box, table
from vastrun.trainer.holding.slots import BoxSlot, changing, drain, drained, slots_of

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SPARED = ("bash", "sh", "sleep")
"""The lease and run.sh: small, and needed to the end."""

_LOOK_S = 0.5
_STATUS_S = 1.0
_STOP_S = SUPERVISOR_SAVING_S + 20.0
"""So long may slots save and be collected once the machine is to end: less than `step.sh` waits."""
_BROKEN_S = 10.0
_EXIT_STOPPED = 143


@dataclass
class _State:
    """What is remembered between two looks."""

    idle_since: float
    """On the monotonic clock, as the others."""
    told_at: float = 0.0
    stop_at: float | None = None
    observed: frozenset[str] = frozenset()


class Holder:
    """Watches the slots of one machine. `idle_s`: how long it waits for the next one."""

    def __init__(
        self,
        box: Path,
        *,
        idle_s: float,
        say: Callable[[str], None],
        now: Callable[[], float],
    ) -> None:
        self._box, self._idle_s, self._say, self._now = box, idle_s, say, now
        self._asked = False
        self._state = _State(idle_since=now())

    def ask_to_end(self, *_: object) -> None:
        """Have the machine end: what SIGTERM means."""
        self._asked = True

    def look(self) -> str | None:
        """Look once at all slots. Return why the machine ends; None: it goes on."""
        slots = slots_of(self._box)
        self._watch(slots)
        self._tell()
        if slots:
            self._state.idle_since = self._now()
        if self._asked or (self._box / layout.STOP).exists():
            return self._stopping(slots)
        why = drained(self._box)
        if why:
            return None if slots else why
        if self._now() - self._state.idle_since < self._idle_s:
            return None
        return self._end_idle()

    def _end_idle(self) -> str | None:
        """Under the lock: a slot that is made meanwhile keeps the machine."""
        with changing(self._box):
            if slots_of(self._box):
                return None
            drain(self._box, f"no slot was wanted for {self._idle_s:.0f} s")
        return drained(self._box)

    def _stopping(self, slots: list[BoxSlot]) -> str | None:
        """Slots are asked to stop, and their outputs may still be collected."""
        why = _first_line(self._box / layout.STOP) or "stopped"
        drain(self._box, f"the machine is to end: {why}")
        if self._state.stop_at is None:
            self._state.stop_at = self._now()
        for slot in slots:  # also one that was being made
            request = self._box / layout.SLOTS / slot.name / layout.STOP
            if not request.exists():
                write_atomically(request, f"{why}\n", durable=False)
        over = self._now() - self._state.stop_at > _STOP_S
        return drained(self._box) if over or not slots else None

    def _watch(self, slots: list[BoxSlot]) -> None:
        processes = table() if slots else {}
        for slot in slots:
            excess = hold_to_limit(self._box / layout.SLOTS / slot.name, slot.memory_mib, processes)
            if excess is not None:
                self._say(f"{slot.name}: {excess.text}")
                _note(self._box / layout.SLOTS / slot.name, excess.text)
        names = frozenset(slot.name for slot in slots)
        for name in sorted(names - self._state.observed):
            self._say(f"slot {name} is there")
        for name in sorted(self._state.observed - names):
            self._say(f"slot {name} is gone")
        self._state.observed = names

    def _tell(self) -> None:
        if self._now() - self._state.told_at >= _STATUS_S:
            self._state.told_at = self._now()
            write_json(
                self._box / layout.STATUS,
                {"at": time.time(), "step": 0, "steps": 0, "loss": None, "ranks": []},
                durable=False,
            )


def hold(box: Path, idle_s: float) -> int:
    """Hold the machine until there is a reason to end it. Return the exit status of the step."""
    say = partial(print, flush=True)
    holder, began = Holder(box, idle_s=idle_s, say=say, now=time.monotonic), time.time()
    signal.signal(signal.SIGTERM, holder.ask_to_end)
    while (why := _look(holder)) is None:
        time.sleep(_LOOK_S)
    stop = _first_line(box / layout.STOP)
    print(why, flush=True)
    write_atomically(box / layout.OUTCOME, _outcome(why, stop, began).to_json())
    return _EXIT_STOPPED if stop else 0


def _look(holder: Holder) -> str | None:
    """A disk that is full must not end the machine under its slots: its lease does, when it is time."""
    try:
        return holder.look()
    except OSError as error:
        print(f"cannot look after the slots: {error}", flush=True)
        time.sleep(_BROKEN_S)
        return None


def _outcome(why: str, stop: str, began: float) -> Outcome:
    reason: Reason = "stopped" if stop else "finished"
    return Outcome(
        kind="hold",
        reason=reason,
        detail=why,
        started_at=began,
        ended_at=time.time(),
        world_size=0,
        ranks=(),
        stop_cause=stop or None,
    )


def _note(folder: Path, text: str) -> None:
    """A line in the slot's own log: one write of one whole line, as all who write there do."""
    if (folder / layout.LOG).exists():
        with (folder / layout.LOG).open("ab", buffering=0) as log:
            log.write(f"{time.time():.3f} lease {text}\n".encode())


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").partition("\n")[0].strip()
    except OSError:
        return ""


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
