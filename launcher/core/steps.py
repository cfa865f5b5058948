"""How the steps of a run on its box ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class StepEnd:
    """A step that was done."""

    step: str
    """`40-data`."""
    exit_code: int
    seconds: float
    stop: str = ""
    """Whose stop ended it, as the box says; empty: nobody's."""
    last_line: str = ""
    """What it wrote last before it failed, as the box says."""
