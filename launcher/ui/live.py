"""The Screen port as a live view on a terminal: events above, the run's state and newest log lines below."""

from __future__ import annotations

import math
import textwrap
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TextIO

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Progress, Run
from vastrun.launcher.gate.caps import LINE_CHARACTERS
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.painter import Painter
from vastrun.launcher.ui.question import HeldStream
from vastrun.launcher.ui.render.live import LearningCurve, LiveView, live_lines
from vastrun.launcher.ui.render.loglines import parse_line, shown
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities, size

_PAINT_INTERVAL_S = 0.25
"""Seconds between two paints, except at an event."""
_MAX_LOG_LINES = 8
_EVENT_ROWS = 4
"""Rows that the log leaves to the newest events."""
_MIN_ROWS = 12
_MIN_WRAP_COLUMNS = 20
"""Minimum columns for wrapping a text; in fewer, one long line is easier to read."""


def supports_live_view(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a live view is useful: an interactive terminal with colours, UTF-8 and enough rows."""
    if not TerminalCapabilities.of(stream, environ).color or environ.get("CI"):
        return False
    return size(stream)[1] >= _MIN_ROWS and (stream.encoding or "").lower().replace("-", "") == "utf8"


class LiveScreen(StreamScreen):
    """Shows one run after the other: a view that is repainted, below events and notes that stay."""

    def __init__(
        self,
        stream: HeldStream,
        *,
        began: float,
        now: Callable[[], float] = time.time,
        curve_of: Callable[[Run], LearningCurve] = lambda _: LearningCurve(),
    ) -> None:
        """`began`: start of elapsed time, epoch seconds. `curve_of`: returns a run's downloaded metrics."""
        super().__init__(stream, TerminalCapabilities(live=True, color=True), began=began, now=now)
        self._output, self._painter, self._curve_of = stream, Painter(stream), curve_of
        self._log: deque[str] = deque(maxlen=_MAX_LOG_LINES)
        self._view: LiveView | None = None
        self._run_id = ""
        self._painted_at = -math.inf

    def report(self, event: Event) -> None:
        """Print an event above the view, and update the view's phase."""
        if self._view is not None:
            began = {event.phase: event.at, **self._view.began}
            self._view = replace(self._view, phase=event.phase, began=began, usd=event.usd)
        super().report(event)

    def log(self, text: str) -> None:
        """Add new lines of the training's log; the last may be incomplete."""
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest[:LINE_CHARACTERS]
        for raw in lines[-_MAX_LOG_LINES:]:
            line = parse_line(raw)
            text = shown(raw) if line is None else f"{shown(line.source)} {shown(line.text)}"
            self._log.append(one_line(text).expandtabs(4))
        if lines and self._is_due():
            self._paint()

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        """Update the run's state."""
        if not self._is_due():
            return
        view = self._view if run.id == self._run_id else None
        if view is None:
            if self._run_id:  # a retry: the log of the first machine is not the second's
                self._log.clear()
            self._run_id = run.id
            spec = read_job(run.spec_json)
            view = LiveView(usd_limit=spec.limits.usd, machines=spec.nodes)
        self._view = replace(
            view,
            phase=run.phase,
            began={run.phase: run.phase_at, **view.began},
            now=self._now(),
            progress=progress,
            usd=usd,
            usd_per_hour=run.usd_per_hour,
            curve=self._curve_of(run),
        )
        self._paint()

    def close(self) -> None:
        """Erase the view, and print the newest lines of the log."""
        self._painter.erase()
        self._view = None
        for line in self._log:
            self._line(line)
        self._log.clear()

    def _line(self, text: str) -> None:
        """Print a line above the view."""
        self._painter.print_above(text)
        self._paint()

    def _folded(self, text: str, indent: int) -> str:
        """Wrap the text at words, to the terminal's width."""
        room = size(self._output)[0] - indent
        if len(text) <= room or room < _MIN_WRAP_COLUMNS:
            return text
        return f"\n{' ' * indent}".join(textwrap.wrap(text, room))

    def _is_due(self) -> bool:
        return self._now() - self._painted_at >= _PAINT_INTERVAL_S

    def _paint(self) -> None:
        if self._view is None:
            return
        self._painted_at = self._now()
        width, rows = size(self._output)
        lines = live_lines(self._view, width - 1)
        room = max(0, rows - _EVENT_ROWS - len(lines))
        log = list(self._log)[-room:] if room else []
        self._painter.paint([*lines, *(((f"  {text}", "dim"),) for text in log)])


_LIST_PAINT_INTERVAL_S = 0.5
_LIST_MAX_AGE_S = 2.0
"""Age at which the list is read from the ledger again."""
_ROWS_ABOVE_LIST = 6
"""Rows of the terminal for lines printed above the list."""

Listed = Callable[[], Sequence[str]]
"""Returns a header and a line for each open run."""


class ListScreen(StreamScreen):
    """Shows many runs: printed lines stay above a list that is repainted."""

    def __init__(
        self, stream: HeldStream, listed: Listed, *, began: float, now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(stream, TerminalCapabilities(live=True, color=True), began=began, now=now)
        self._output, self._painter, self._listed = stream, Painter(stream), listed
        self._text = ""
        self._lines: Sequence[str] = ()
        self._listed_at = self._painted_at = -math.inf

    def gauge(self, text: str) -> None:
        """Update the summary of all runs, and the list of open ones."""
        self._text = f"{self._elapsed():>8}  {one_line(text)}"
        if self._now() - self._painted_at < _LIST_PAINT_INTERVAL_S:
            return
        if self._now() - self._listed_at >= _LIST_MAX_AGE_S:
            self._lines, self._listed_at = self._listed(), self._now()
        self._paint()

    def close(self) -> None:
        """Erase the list."""
        self._painter.erase()
        self._text, self._lines = "", ()

    def _line(self, text: str) -> None:
        self._painter.print_above(text)
        self._paint()

    def _paint(self) -> None:
        if not self._text:
            return
        self._painted_at = self._now()
        room = max(0, size(self._output)[1] - _ROWS_ABOVE_LIST)
        shown = list(self._lines[:room])
        if len(self._lines) > room > 0:
            shown[-1] = f"… and {len(self._lines) - room + 1} more"
        lines = [((one_line(text), "dim" if n == 0 else ""),) for n, text in enumerate(shown)]
        self._painter.paint([((self._text, "bold"),), *lines])
