"""The progress of a run on the screen, which is repeated while nothing new is known."""

from __future__ import annotations

import math

from launcher.core import Phase, Progress, Run
from launcher.ports import Screen

SHOWN_EACH_S = 1.0
"""Seconds after which the same progress is shown again, with its new time and cost."""


class ProgressDisplay:
    """The progress of one run, as the screen shows it."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._known: tuple[Phase | None, Progress] = (None, Progress())
        """The last progress, and the phase that it is of."""
        self._shown: tuple[Phase | None, float] = (None, -math.inf)

    def is_due(self, phase: Phase, progress: Progress | None, now: float) -> bool:
        """Return whether to show something: new progress, a new phase, or the same after a while."""
        shown_phase, shown_at = self._shown
        recent = 0 <= now - shown_at < SHOWN_EACH_S / 2
        return progress is not None or shown_phase is not phase or not recent

    def show(self, run: Run, progress: Progress | None, usd: float, now: float) -> None:
        """Show the progress; None: what was last known of this phase."""
        if progress is not None:
            self._known = (run.phase, progress)
        self._shown = (run.phase, now)
        phase, known = self._known
        self._screen.progress(run, known if phase is run.phase else Progress(), usd=usd)
