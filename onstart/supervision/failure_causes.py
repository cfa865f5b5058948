"""Failure causes: what the measurements of a machine say about the end of a rank, in a fixed order.

A row proves its reason by what was measured, together with what the program raised; a text that was printed
proves nothing. Where no row fits, the exit code, the signal and the raised exception say the reason
(`diagnosis.reason_of_end`). `contract/outcome.REASONS` says what each reason allows. Pure; standard library
only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from vastrun.contract.outcome import MachineReading, RankEnd, Reason
from vastrun.onstart.supervision.uncaught import RECENT_S, SLACK_S, Uncaught


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The end of a rank, what it raised, and the measurements of its machine."""

    end: RankEnd
    at: float
    """Epoch seconds."""
    raised: Uncaught | None
    reading: MachineReading

    def is_recent(self, at: float | None) -> bool:
        """Tell whether something that happened then may have ended the rank."""
        return at is not None and at - SLACK_S <= self.at <= at + RECENT_S


def _memory_kill(failure: Failure) -> str:
    reading, end = failure.reading, failure.end
    if end.signal not in (None, "SIGKILL"):
        return ""
    is_killed = end.signal == "SIGKILL" or (failure.raised is not None and failure.raised.reason == "signal")
    # Of a kill that is counted for the whole computer, the program must have noticed one itself.
    if not failure.is_recent(reading.memory_killed_at) and not (reading.memory_killed and is_killed):
        return ""
    who = "it" if end.signal == "SIGKILL" else "one of its processes"
    return f"the kernel killed {who}: out of memory" + (f", {reading.memory}" if reading.memory else "")


def _full_memory(failure: Failure) -> str:
    return _full(failure, in_memory=True)


def _full_disk(failure: Failure) -> str:
    return _full(failure, in_memory=False)


def _full(failure: Failure, *, in_memory: bool) -> str:
    disks = failure.reading.file_systems
    full = [disk for disk in disks if failure.is_recent(disk.full_at)]
    if full:
        found = next((disk for disk in full if disk.in_memory is in_memory), None)
        return f"{found.path} ({found.size / 1e9:.3g} GB) was full" if found else ""
    if not disks or failure.raised is None or failure.raised.reason != "disk":
        return ""
    # What filled it has been removed since.
    found = min(disks, key=lambda disk: disk.free)
    room = f"{found.free / 1e9:.3g} of {found.size / 1e9:.3g} GB"
    return f"{found.path} has the least room, {room}" if found.in_memory is in_memory else ""


def _gpu_fault(failure: Failure) -> str:
    return "; ".join(failure.reading.gpu_faults or ())


def _no_network(failure: Failure) -> str:
    reading, raised = failure.reading, failure.raised
    if reading.reachable or not reading.unreachable or (raised is not None and not raised.is_of_the_network):
        return ""
    return f"this machine no longer reaches {', '.join(reading.unreachable)}, which it did at the start"


MEASURED: tuple[tuple[Reason, Callable[[Failure], str]], ...] = (
    ("oom", _memory_kill),
    ("oom", _full_memory),
    ("disk", _full_disk),
    ("device", _gpu_fault),
    ("network", _no_network),
)
"""Reasons with what proves each, the surest first; a proof returns what it measured, or an empty text."""


def measured_cause(failure: Failure) -> tuple[Reason | None, str]:
    """Return the reason that the measurements prove, and what was measured; None: they prove none."""
    proofs = ((reason, prove(failure)) for reason, prove in MEASURED)
    return next(((reason, text) for reason, text in proofs if text), (None, ""))
