"""Lost process: whether a rank failed because the kernel killed a process that it had started. Pure.

A rank that lives on when a worker or a subprocess of its was killed for want of memory raises an error of its
own: RuntimeError, CalledProcessError, BrokenProcessPool, EOFError. Standard library only.
"""

from __future__ import annotations

import re

from trainer.contract.outcome import RankEnd, Reason

_RECENT_S = 120.0
"""Seconds in which a program notices that a process of its was killed."""
_SLACK_S = 5.0
"""Seconds by which a kill may be seen after the end that it caused."""
_OWN_REASONS: tuple[Reason, ...] = ("error", "signal")
_NAMES_A_KILL = re.compile(
    r"SIGKILL|\b[Kk]illed\b|signal 9\b|exited unexpectedly|terminated abruptly|exit (code|status) (-9|137)\b"
)
"""Found in the text of an error about a process that ended."""


def lost_a_process(
    reason: Reason, end: RankEnd, at: float, *, killed_at: float | None, killed_elsewhere: bool
) -> bool:
    """Tell whether a rank that failed at `at`, seemingly for `reason`, had lost a process before.

    `killed_at`: when the kernel last killed one of this run for want of memory. `killed_elsewhere`: it killed
    one on this computer, and does not say of which run: then the error must speak of it.
    """
    if reason not in _OWN_REASONS or end.signal is not None or not end.exit_code:
        return False
    if killed_at is not None:
        return killed_at - _SLACK_S <= at <= killed_at + _RECENT_S
    return killed_elsewhere and _NAMES_A_KILL.search(end.exception or end.last_lines or "") is not None
