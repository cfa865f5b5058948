"""Failure causes: what the measurements of a machine say about the end of a rank, and the line on it.

A row proves its reason by what was measured, together with what the program raised; a text that was printed
proves nothing. Where no row fits, the exit code, the signal and the raised exception say the reason
(`diagnosis.reason_of_end`). `contract/outcome.REASONS` says what each reason allows. Pure; standard library
only.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from vastrun.contract.outcome import MachineReading, RankEnd, Reason
from vastrun.onstart.supervision.uncaught import RECENT_S, SLACK_S, Uncaught

_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in [^\n]*(?:\n    (\S[^\n]*))?', re.MULTILINE)
"""A frame of a traceback: its file, its line and, where the file was readable, the code."""


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


def _old_driver(failure: Failure) -> str:
    driver, raised = failure.reading.driver_cuda, failure.raised
    needed = (raised and raised.torch_cuda) or ""
    major = needed.partition(".")[0]
    if raised is None or not raised.module.startswith("torch.cuda") or not driver or not major.isdigit():
        return ""
    # Within a major version newer programs run on older drivers.
    is_older = int(driver.partition(".")[0]) < int(major)
    return f"the driver supports CUDA {driver}, and this torch needs {needed}" if is_older else ""


def _no_network(failure: Failure) -> str:
    reading, raised = failure.reading, failure.raised
    if reading.reachable or not reading.unreachable or (raised is not None and not raised.is_of_the_network):
        return ""
    return f"this machine no longer reaches {', '.join(reading.unreachable)}, which it did at the start"


MEASURED: tuple[tuple[Reason, Callable[[Failure], str]], ...] = (
    ("oom", _memory_kill),
    ("oom", partial(_full, in_memory=True)),
    ("disk", partial(_full, in_memory=False)),
    ("device", lambda failure: "; ".join(failure.reading.gpu_faults or ())),
    ("device", _old_driver),
    ("network", _no_network),
)
"""Reasons with what proves each, the surest first; a proof returns what it measured, or an empty text."""


def measured_cause(failure: Failure) -> tuple[Reason | None, str]:
    """Return the reason that the measurements prove, and what was measured; None: they prove none."""
    proofs = ((reason, prove(failure)) for reason, prove in MEASURED)
    return next(((reason, text) for reason, text in proofs if text), (None, ""))


def failure_line(end: RankEnd, reason: Reason, *, training: bool, crash: str = "") -> str:
    """Return a line on the failure of a rank. `training`: it ran the onboard trainer.

    `crash`: the place of a crash in native code.
    """
    where, who, raised = where_text(end.step, end.activity), f"rank {end.rank}", _raised(end)
    if end.signal:
        # The exit code of a shell, or of the program's own launcher, names the signal that ended its child.
        code = f" (exit code {end.exit_code})" if (end.exit_code or 0) > 0 else ""
        cause = f": {end.exception}" if end.exception else crash and f" {crash}"
        return f"{who} was killed by {end.signal}{code}{where}{cause}"
    if end.exception and end.reason is None and not end.signal:
        return (
            f"{who} exited with code {end.exit_code}{where} after it printed {raised}{_last_line_text(end)}"
        )
    if end.exception and reason == "error" and not training:
        return f"your program raised {raised} ({who}{where}){_last_line_text(end)}"
    if end.exception:
        return f"{who} failed{where}: {raised}"
    if end.exit_code == 0:
        return f"{who} exited with code 0{where} before the training was done"
    return f"{who} exited with code {end.exit_code}{where}{_last_line_text(end)}"


def _raised(end: RankEnd) -> str:
    """Return the exception; one without a message with the line of code that raised it."""
    exception = end.exception or ""
    frames = [] if ":" in exception else _FRAME.findall(end.traceback or "")
    if not frames:
        return exception
    path, line, code = frames[-1]
    return f"{exception} at {PurePosixPath(path).name}:{line}" + (f": {code}" if code else "")


def _last_line_text(end: RankEnd) -> str:
    last = (end.last_lines or "").rpartition("\n")[2].strip()
    return f"; last line: {last}" if last and last not in (end.exception or "") else ""


def where_text(step: int, activity: str) -> str:
    """Format the step and the activity of a rank; empty where neither is known."""
    if not step and not activity:
        return ""
    return f" at step {step}" + (f" ({activity})" if activity not in ("", "step") else "")
