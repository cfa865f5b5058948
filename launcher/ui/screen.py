"""The Screen port on a stream: events with elapsed time and cost, the log, a line of progress."""

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
from vastrun.launcher.ui.render.amounts import WIDTH, duration, short, usd
from vastrun.launcher.ui.render.loglines import parse_line, shown
from vastrun.launcher.ui.render.runs import progress_text

_CLEAR = "\r\x1b[K"
_DIM, _BOLD, _PLAIN = "\x1b[2m", "\x1b[1m", "\x1b[0m"
_LIVE_INTERVAL_S, _PLAIN_INTERVAL_S = 0.2, 30.0


@dataclass(frozen=True, kw_only=True)
class TerminalCapabilities:
    """Capabilities of a stream's terminal."""

    live: bool
    """True if a line can be overwritten."""
    color: bool

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> TerminalCapabilities:
        """Detect them: none for a file, a pipe or a dumb terminal; no colour if NO_COLOR is set."""
        live = stream.isatty() and environ.get("TERM", "dumb") != "dumb"
        return cls(live=live, color=live and not environ.get("NO_COLOR"))


class OutputStream(Protocol):
    """A stream to write to, as a file object."""

    def write(self, text: str) -> object: ...

    def flush(self) -> None: ...

    def fileno(self) -> int: ...


def size(stream: OutputStream) -> tuple[int, int]:
    """Return the current columns and rows of the stream's terminal; 80 and 24 if unknown."""
    with suppress(OSError, ValueError):
        found = os.get_terminal_size(stream.fileno())
        return found.columns or WIDTH, found.lines or 24
    return WIDTH, 24


def supports_live_view(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """Return whether a live view is useful: an interactive terminal with colours, UTF-8 and enough rows."""
    if not TerminalCapabilities.of(stream, environ).color or environ.get("CI"):
        return False
    return size(stream)[1] >= 12 and (stream.encoding or "").lower().replace("-", "") == "utf8"


class StreamScreen:
    """Shows a run on a stream. `began`: start of elapsed time, epoch seconds."""

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

    def report(self, event: Event) -> None:
        """Print an event of the run."""
        elapsed = duration(event.at - self._began)
        phase = self._styled(_BOLD, f"{event.phase.value:<8}")
        text = self._folded(one_line(event.text), 28)
        self._line(f"{elapsed:>8} {usd(event.usd):>8}  {phase} {text}")

    def step(self, name: str, text: str) -> None:
        """Print a step of other work than a run."""
        self._progress = ""
        styled = self._styled(_BOLD, f"{name:<8}")
        self._line(
            f"{_CLEAR if self._capabilities.live else ''}{self._elapsed():>8}  {styled} {one_line(text)}"
        )

    def gauge(self, text: str) -> None:
        """Show the progress of a step: overwritten on a terminal, elsewhere a line now and then."""
        self._overwrite(f"{self._elapsed():>8}  {one_line(text)}")

    def log(self, text: str) -> None:
        """Print new lines of the training's log; the last may be incomplete."""
        *lines, rest = (self._rest + text).split("\n")
        self._rest = rest[:LINE_CHARACTERS]
        for raw in lines:
            line = parse_line(raw)
            if line is None:
                self._line(shown(raw))
            else:
                self._line(f"{self._styled(_DIM, shown(line.origin))} {shown(line.text)}")

    def progress(self, run: Run, progress: Progress, *, usd: float) -> None:
        """Show the progress of the run: overwritten on a terminal, elsewhere a line now and then."""
        moved = progress.step not in (None, 0, self._shown_step)
        if (self._capabilities.live or moved) and self._overwrite(self._status_line(run, progress, usd)):
            self._shown_step = progress.step

    def note(self, text: str) -> None:
        """Print a line between the events."""
        self._line(one_line(text))

    def close(self) -> None:
        """Erase the line of progress."""
        self._write(_CLEAR if self._progress else "")
        self._progress = ""

    def _status_line(self, run: Run, progress: Progress, spent_usd: float) -> str:
        text = one_line(progress_text(progress))
        return f"{self._elapsed():>8} {usd(spent_usd):>8}  {run.phase.value:<8} {text}"

    def _elapsed(self) -> str:
        return duration(self._now() - self._began)

    def _overwrite(self, text: str) -> bool:
        """Replace the line of progress; return False if it is too soon."""
        interval_s = _LIVE_INTERVAL_S if self._capabilities.live else _PLAIN_INTERVAL_S
        if self._now() - self._shown_at < interval_s:
            return False
        self._shown_at = self._now()
        if self._capabilities.live:
            self._progress = short(text.rstrip(), size(self._stream)[0] - 1)
            self._write(_CLEAR + self._progress)
        else:
            self._line(text)
        return True

    def _line(self, text: str) -> None:
        """Print a line above the line of progress."""
        self._write(f"{_CLEAR}{text}\n{self._progress}" if self._progress else f"{text}\n")

    def _folded(self, text: str, indent: int) -> str:  # noqa: ARG002 - for screens with a width
        """Wrap a text that begins at column `indent`; here, do not."""
        return text

    def _styled(self, style: str, text: str) -> str:
        return f"{style}{text}{_PLAIN}" if self._capabilities.color else text

    def _write(self, text: str) -> None:
        # A closed terminal must not end the launcher: there is a machine to destroy.
        with suppress(OSError):
            self._stream.write(text)
            self._stream.flush()
