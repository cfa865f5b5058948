"""Slow machine: one that trains far below what other hosts of its kind have shown. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vastrun.launcher.decisions import policy

if TYPE_CHECKING:  # it knows jobs, which `status` does not read
    from vastrun.launcher.decisions.history import Speed

BEGINS = "trains at "


def slow_machine_text(kind: str, steps_per_s: float, known: Speed | None) -> str:
    """Compare the speed of a machine with its kind's on other hosts; empty: it is not slow.

    `known`: None where nothing was measured on that kind.
    """
    if known is None or known.runs < policy.SLOW_RUNS or steps_per_s >= known.steps_per_s * policy.SLOW_SHARE:
        return ""
    share, speed = steps_per_s / known.steps_per_s, f"{known.steps_per_s:.3g} steps/s, {known.runs} runs"
    return f"{BEGINS}{share:.2f} of the speed of earlier runs on {kind} ({speed})"
