"""The Screen port as a live view on a terminal: events above, the run's state and newest log lines below,
repainted in place.
"""

from __future__ import annotations

import math
import textwrap
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Progress, Run
from vastrun.launcher.gate.caps import LINE_CHARACTERS
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.question import HeldStream
from vastrun.launcher.ui.render.live import LearningCurve, Line, LiveView, cut, live_lines, width_of
from vastrun.launcher.ui.render.loglines import parse_line, shown
from vastrun.launcher.ui.screen import StreamScreen, TerminalCapabilities, size

_MAX_LOG_LINES = 8
_EVENT_ROWS = 4
"""Rows that the log leaves to the newest events."""
_MIN_WRAP_COLUMNS = 20
"""Minimum columns for wrapping a text; in fewer, one long line is easier to read."""
_UP, _ERASE_BELOW, _PLAIN = "\x1b[{}A", "\x1b[J", "\x1b[0m"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
"""Codes for wrapping, which is off in a painted line: terminals differ in the width of some emoji."""
_CODES: Mapping[str, str] = {"bold": "\x1b[1m", "dim": "\x1b[2m", "done": "\x1b[32m", "now": "\x1b[1;36m"}


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
        return self._now() - self._painted_at >= 0.25

    def _paint(self) -> None:
        if self._view is None:
            return
        self._painted_at = self._now()
        width, rows = size(self._output)
        lines = live_lines(self._view, width - 1)
        room = max(0, rows - _EVENT_ROWS - len(lines))
        log = list(self._log)[-room:] if room else []
        self._painter.paint([*lines, *(((f"  {text}", "dim"),) for text in log)])


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
        if self._now() - self._painted_at < 0.5:
            return
        if self._now() - self._listed_at >= 2.0:
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


class Painter:
    """Paints on a terminal. Never raises: a closed terminal must not end the launcher."""

    def __init__(self, output: HeldStream) -> None:
        self._output = output
        self._painted: Sequence[Line] = ()
        self._holds = 0

    def paint(self, lines: Sequence[Line]) -> None:
        """Replace the painted lines, cut to the terminal's columns and rows."""
        if self._output.is_held:
            return
        columns, rows = size(self._output)
        fitting = [cut(line, columns - 1) for line in lines[: max(1, rows - 1)]]
        text = "\n".join(
            "".join(f"{_CODES[style]}{text}{_PLAIN}" if style else text for text, style in line)
            for line in fitting
        )
        self._write(f"{self._erased()}{_NO_WRAP}{text}{_WRAP}")
        self._painted = fitting

    def print_above(self, text: str) -> None:
        """Erase the painted lines, and print a line that stays."""
        self._write(f"{self._erased()}{text}\n")

    def erase(self) -> None:
        """Erase the painted lines."""
        self._write(self._erased())

    def _erased(self) -> str:
        """Return the codes that erase the painted lines; empty if a question was printed below them."""
        if self._output.holds != self._holds:
            self._holds, self._painted = self._output.holds, ()
        lines, self._painted = self._painted, ()
        if not lines:
            return ""
        # A terminal that became narrower shows a line on several rows.
        width = max(1, size(self._output)[0])
        rows = sum(max(1, math.ceil(width_of(line) / width)) for line in lines)
        return "\r" + (_UP.format(rows - 1) if rows > 1 else "") + _ERASE_BELOW

    def _write(self, text: str) -> None:
        with suppress(OSError):
            self._output.write(text)
            self._output.flush()
