"""hold(): the machine waits for slots and watches them, until it is told to end or nobody wants it."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trainer.contract import layout
from trainer.contract.outcome import Outcome, Reason
from trainer.contract.records import write_atomically, write_json
from trainer.contract.stop_budget import SUPERVISOR_SAVING_S
from trainer.holding.memory import hold_to_limit
from trainer.holding.processes import table
from trainer.holding.slots import BoxSlot, changing, drain, drained, slots_of

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
    watched: frozenset[str] = frozenset()


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
        for name in sorted(names - self._state.watched):
            self._say(f"slot {name} is there")
        for name in sorted(self._state.watched - names):
            self._say(f"slot {name} is gone")
        self._state.watched = names

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
