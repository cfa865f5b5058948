"""Failure line: describe the failure of a rank, also after the kernel killed one of its processes.

A rank whose worker or subprocess was killed for lack of memory survives and raises another error:
RuntimeError, CalledProcessError, BrokenProcessPool, EOFError. Pure; standard library only.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from vastrun.contract.outcome import RankEnd, Reason
from vastrun.onstart.supervision.memory_counters import MemoryUse, gib
from vastrun.onstart.supervision.ranklogs import last_line

_RECENT_S = 120.0
"""Seconds within which a program notices that one of its processes was killed."""
_SLACK_S = 5.0
"""Seconds by which a kill may be recorded after the end that it caused."""
_OWN_REASONS: tuple[Reason, ...] = ("error", "signal")
_NAMES_A_KILL = re.compile(
    r"SIGKILL|\b[Kk]illed\b|signal 9\b|exited unexpectedly|terminated abruptly|exit (code|status) (-9|137)\b"
)
"""Matches the text of an error about a process that was killed."""
_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in [^\n]*(?:\n    (\S[^\n]*))?', re.MULTILINE)
"""A frame of a traceback: its file, its line and, where the file was readable, the code."""


def failure_line(end: RankEnd, reason: Reason, *, training: bool, peak: str, crash: str = "") -> str:
    """Return a line on the failure of a rank. `training`: it ran the onboard trainer.

    `peak`: the result of `peak_text`. `crash`: the place of a crash in native code.
    """
    where, who, raised = where_text(end.step, end.activity), f"rank {end.rank}", _raised(end)
    if reason == "oom" and end.signal:
        return f"{who} was killed by the kernel (out of memory){where}{peak}"
    if end.signal:
        # The exit code of a shell, or of the program's own launcher, names the signal that ended its child.
        code = f" (exit code {end.exit_code})" if (end.exit_code or 0) > 0 else ""
        cause = f": {end.exception}" if end.exception else crash and f" {crash}"
        return f"{who} was killed by {end.signal}{code}{where}{cause}"
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
    last = last_line(end.last_lines)
    return f"; last line: {last}" if last else ""


def lost_process_line(end: RankEnd, peak: str) -> str:
    """Return a line on a process of a rank that the kernel killed, and on the rank's error afterwards."""
    raised = end.exception or f"it exited with code {end.exit_code}"
    where = where_text(end.step, end.activity)
    return f"the kernel killed a process of rank {end.rank} (out of memory){where}{peak}; then {raised}"


def peak_text(use: MemoryUse | None, peak_bytes: int | None) -> str:
    """Format the peak memory: of all processes, where the limit is known, else of the rank alone."""
    if use is not None:
        return f"; {use}"
    return f"; it used at most {gib(peak_bytes)}" if peak_bytes else ""


def where_text(step: int, activity: str) -> str:
    """Format the step and the activity of a rank; empty where neither is known."""
    if not step and not activity:
        return ""
    return f" at step {step}" + (f" ({activity})" if activity not in ("", "step") else "")


def lost_a_process(
    reason: Reason, end: RankEnd, at: float, *, killed_at: float | None, killed_elsewhere: bool
) -> bool:
    """Tell whether a rank that failed at `at` with `reason` had lost a process before.

    `killed_at`: time at which the kernel last killed a process of this run for lack of memory.
    `killed_elsewhere`: it killed one of an unknown run on this computer: then the error must mention a kill.
    """
    if reason not in _OWN_REASONS or end.signal is not None or not end.exit_code:
        return False
    if killed_at is not None:
        return killed_at - _SLACK_S <= at <= killed_at + _RECENT_S
    return killed_elsewhere and _NAMES_A_KILL.search(end.exception or end.last_lines or "") is not None
