"""How far a training is, for the user's eyes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a training stands. What is not known is None, and is not shown."""

    activity: str = ""
    """What is being done besides training: `loading data`."""
    step: int | None = None
    steps: int | None = None
    """The last one."""
    loss: float | None = None
    left_s: float | None = None
    """Until the last step, at the pace of the last minutes."""
