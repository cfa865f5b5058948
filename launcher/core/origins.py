"""What a run continues from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Checkpoints of the runs before this one. The newest whole one of the nearest run with any counts."""

    folder: Path | None = None
    """Those that came home."""
    pushed: tuple[str, ...] = ()
    """URLs that this run and those since pushed to by themselves, the nearest run's first."""
    continues: tuple[str, ...] = ()
    """The ids of all the runs before this one, the nearest first."""


NOTHING = Origin()
"""Of a run that begins with its first step."""
