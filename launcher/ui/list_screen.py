"""A screen for many runs at a terminal: how they stand together, and a line for each that goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from launcher.gate.text import one_line
from launcher.ui.painter import Painter
from launcher.ui.question import HeldStream
from launcher.ui.screen import StreamScreen, TerminalCapabilities, size

_PAINT_S = 0.5
_LIST_S = 2.0
"""So old the list may be: it is read from the ledger."""
_KEPT_ROWS = 6
"""Of the terminal, for what is printed above the list."""

Listed = Callable[[], Sequence[str]]
"""A header and a line for each run that goes on."""


class ListScreen(StreamScreen):
    """What is printed stays above; the list below it is painted over."""

    def __init__(
        self, stream: HeldStream, listed: Listed, *, began: float, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(stream, TerminalCapabilities(live=True, color=True), began=began, now=now)
        self._output, self._painter, self._listed = stream, Painter(stream), listed
        self._text = ""
        self._lines: Sequence[str] = ()
        self._listed_at = self._painted_at = -math.inf

    def gauge(self, text: str) -> None:
        """Show how all of them stand, and each that goes on."""
        self._text = f"{self._elapsed():>8}  {one_line(text)}"
        if self._now() - self._painted_at < _PAINT_S:
            return
        if self._now() - self._listed_at >= _LIST_S:
            self._lines, self._listed_at = self._listed(), self._now()
        self._paint()

    def close(self) -> None:
        """Take away what was painted."""
        self._painter.erase()
        self._text, self._lines = "", ()

    def _line(self, text: str) -> None:
        self._painter.print_above(text)
        self._paint()

    def _paint(self) -> None:
        if not self._text:
            return
        self._painted_at = self._now()
        room = max(0, size(self._output)[1] - _KEPT_ROWS)
        shown = list(self._lines[:room])
        if len(self._lines) > room > 0:
            shown[-1] = f"… and {len(self._lines) - room + 1} more"
        lines = [((one_line(text), "dim" if n == 0 else ""),) for n, text in enumerate(shown)]
        self._painter.paint([((self._text, "bold"),), *lines])
