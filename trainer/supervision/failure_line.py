"""Failure line: what is said of a rank that failed, in one line. Pure; standard library only."""

from __future__ import annotations

from trainer.contract.outcome import RankEnd, Reason
from trainer.supervision.last_lines import last_line
from trainer.supervision.memory_counters import MemoryUse, gib


def failure_line(end: RankEnd, reason: Reason, *, training: bool, peak: str, crash: str = "") -> str:
    """Say how a rank failed. `training`: it is one of the onboard trainer. `peak`: what `peak_text` says.

    `crash`: where it crashed in native code.
    """
    where, who = where_text(end.step, end.activity), f"rank {end.rank}"
    if reason == "oom" and end.signal:
        return f"{who} was killed by the kernel (out of memory){where}{peak}"
    if end.signal:
        # A shell, or a launcher that the program brings, says by its exit code what ended its child.
        code = f" (exit code {end.exit_code})" if (end.exit_code or 0) > 0 else ""
        cause = f": {end.exception}" if end.exception else crash and f" {crash}"
        return f"{who} was killed by {end.signal}{code}{where}{cause}"
    if end.exception and reason == "error" and not training:
        return f"your program raised {end.exception} ({who}{where}){_last_line_text(end)}"
    if end.exception:
        return f"{who} failed{where}: {end.exception}"
    if end.exit_code == 0:
        return f"{who} exited with code 0{where} before the training was done"
    return f"{who} exited with code {end.exit_code}{where}{_last_line_text(end)}"


def _last_line_text(end: RankEnd) -> str:
    last = last_line(end.last_lines)
    return f"; last line: {last}" if last else ""


def lost_process_line(end: RankEnd, peak: str) -> str:
    """Say that the kernel killed a process of a rank, and then what the rank made of it."""
    raised = end.exception or f"it exited with code {end.exit_code}"
    where = where_text(end.step, end.activity)
    return f"the kernel killed a process of rank {end.rank} (out of memory){where}{peak}; then {raised}"


def peak_text(use: MemoryUse | None, peak_bytes: int | None) -> str:
    """Say how much memory was in use: by all, where that is limited and known, else by the rank alone."""
    if use is not None:
        return f"; {use}"
    return f"; it used at most {gib(peak_bytes)}" if peak_bytes else ""


def where_text(step: int, activity: str) -> str:
    """Say at which step a rank was, and what it did there; empty where neither is known."""
    if not step and not activity:
        return ""
    return f" at step {step}" + (f" ({activity})" if activity not in ("", "step") else "")
