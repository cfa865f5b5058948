"""The Screen port on a stream: steps with elapsed time and dollars, the log, a line of progress."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, TextIO

from vastrun.launcher.core import Event, Progress, Run
from vastrun.launcher.gate.caps import LINE_CHARACTERS
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.loglines import parse_line, shown
from vastrun.launcher.ui.render.runs import progress_text
from vastrun.launcher.ui.render.table import WIDTH, short

_CLEAR = "\r\x1b[K"
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_LIVE_S, _QUIET_S = 0.2, 30.0
_EVENT_INDENT = 28
"""Columns before the text of an event."""


@dataclass(frozen=True, kw_only=True)
class TerminalCapabilities:
    """What the stream can show."""

    live: bool
    """A line may be overwritten."""
    color: bool

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> TerminalCapabilities:
        """Choose plain for a file, a pipe or a dumb terminal; without colour when NO_COLOR is set."""
        live = stream.isatty() and environ.get("TERM", "dumb") != "dumb"
        return cls(live=live, color=live and not environ.get("NO_COLOR"))


class OutputStream(Protocol):
    """Where it is shown."""

    def write(self, text: str) -> object: ...

    def flush(self) -> None: ...

    def fileno(self) -> int: ...


def size(stream: OutputStream) -> tuple[int, int]:
    """Return the columns and rows of the stream's terminal now; 80 and 24 where it does not say."""
    with suppress(OSError, ValueError):
        found = os.get_terminal_size(stream.fileno())
        return found.columns or WIDTH, found.lines or 24
    return WIDTH, 24


class StreamScreen:
    """Shows a run on a stream. `began`: from when elapsed time counts."""

    def __init__(
        self,
        stream: OutputStream,
        capabilities: TerminalCapabilities,
        *,
        began: float,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._stream, self._capabilities, self._began, self._now = stream, capabilities, began, now
        self._progress = ""
        self._shown_at = 0.0
        self._shown_step: int | None = None
        self._rest = ""

    def event(self, event: Event) -> None:
        """Show an event of the run."""
        elapsed = duration(event.at - self._began)
        phase = self._styled(_BOLD, f"{event.phase.value:<8}")
        text = self._folded(one_line(event.text), _EVENT_INDENT)
        self._line(f"{elapsed:>8} {usd(event.usd):>8}  {phase} {text}")

    def step(self, name: str, text: str) -> None:
        """Show a step of something that is no run."""
        self._progress = ""
        styled = self._styled(_BOLD, f"{name:<8}")
        self._line(
            f"{_CLEAR if self._capabilities.live else ''}{self._elapsed():>8}  {styled} {one_line(text)}"
        )

    def gauge(self, text: str) -> None:
        """Show how far such a step is: overwritten on a terminal, now and then a line elsewhere."""
        self._overwrite(f"{self._elapsed():>8}  {one_line(text)}")

    def log(self, text: str) -> None:
        """Show new lines of the training's log; the last may come in parts."""
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest[:LINE_CHARACTERS]
        for raw in lines:
            line = parse_line(raw)
            if line is None:
                self._line(shown(raw))
            else:
                self._line(f"{self._styled(_DIM, shown(line.origin))} {shown(line.text)}")

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        """Show where the run stands.

        On a terminal it is overwritten; elsewhere it is a line now and then, when it moved.
        """
        moved = progress.step not in (None, 0, self._shown_step)
        if (self._capabilities.live or moved) and self._overwrite(self._status_line(run, progress, usd)):
            self._shown_step = progress.step

    def note(self, text: str) -> None:
        """Show a line beside the events."""
        self._line(one_line(text))

    def close(self) -> None:
        """End the line that is open: nothing half-written stays on the terminal."""
        self._write(_CLEAR if self._progress else "")
        self._progress = ""

    def _status_line(self, run: Run, progress: Progress, spent_usd: float) -> str:
        text = one_line(progress_text(progress))
        return f"{self._elapsed():>8} {usd(spent_usd):>8}  {run.phase.value:<8} {text}"

    def _elapsed(self) -> str:
        return duration(self._now() - self._began)

    def _overwrite(self, text: str) -> bool:
        """The text takes the place of the line of progress; False when it is too soon for that."""
        if self._now() - self._shown_at < (_LIVE_S if self._capabilities.live else _QUIET_S):
            return False
        self._shown_at = self._now()
        if self._capabilities.live:
            self._progress = short(text.rstrip(), size(self._stream)[0] - 1)
            self._write(_CLEAR + self._progress)
        else:
            self._line(text)
        return True

    def _line(self, text: str) -> None:
        """A whole line above the line of progress."""
        self._write(f"{_CLEAR}{text}\n{self._progress}" if self._progress else f"{text}\n")

    def _folded(self, text: str, indent: int) -> str:  # noqa: ARG002 - of a screen that has a width
        """Return a text that begins at column `indent` as it is written."""
        return text

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{_PLAIN}" if self._capabilities.color else text

    def _write(self, text: str) -> None:
        # A terminal that was closed must not end the launcher: there is a machine to give back.
        try:
            self._stream.write(text)
            self._stream.flush()
        except OSError:
            return
