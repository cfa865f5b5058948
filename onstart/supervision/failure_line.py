"""Failure line: describe the failure of a rank in one line. Pure; standard library only."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from vastrun.contract.outcome import RankEnd, Reason
from vastrun.onstart.supervision.ranklogs import last_line

_FRAME = re.compile(r'^  File "([^"\n]+)", line (\d+), in [^\n]*(?:\n    (\S[^\n]*))?', re.MULTILINE)
"""A frame of a traceback: its file, its line and, where the file was readable, the code."""


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
    last = last_line(end.last_lines)
    return f"; last line: {last}" if last and last not in (end.exception or "") else ""


def where_text(step: int, activity: str) -> str:
    """Format the step and the activity of a rank; empty where neither is known."""
    if not step and not activity:
        return ""
    return f" at step {step}" + (f" ({activity})" if activity not in ("", "step") else "")
