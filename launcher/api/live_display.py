"""Live displays: a card of a notebook that is replaced in place, or a line of a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, TextIO, TypeVar

_INTERVAL_S = 1.0
_PLAIN_INTERVAL_S = 30.0
"""Seconds between two lines where lines cannot be replaced, as in a file."""

_T = TypeVar("_T")


class Shown(Protocol):
    """A run or a batch with a display of its progress."""

    def _repr_html_(self) -> str: ...

    def progress_line(self) -> str:
        """Return the progress as one line, without control characters."""
        ...


class LiveDisplay(Protocol):
    """A display that is refreshed while a program waits."""

    interval_s: float

    def refresh(self) -> None:
        """Show the current progress."""
        ...

    def close(self) -> None:
        """Leave the last progress on the screen."""
        ...


class NotebookDisplay:
    """A card below the cell."""

    interval_s = _INTERVAL_S

    def __init__(self, shown: Shown, ipython: Any) -> None:
        """`ipython`: the module IPython.display."""
        self._shown, self._ipython = shown, ipython
        self._handle: Any = None

    def refresh(self) -> None:
        """Replace the card."""
        html = self._ipython.HTML(self._shown._repr_html_())
        if self._handle is None:
            self._handle = self._ipython.display(html, display_id=True)
        else:
            self._handle.update(html)

    def close(self) -> None:
        """Do nothing: the card stays."""


class TerminalDisplay:
    """One line of stderr, replaced in place in a terminal; elsewhere a new line when it has changed."""

    def __init__(self, shown: Shown, stream: TextIO) -> None:
        self._shown, self._stream, self._is_live = shown, stream, stream.isatty()
        self._last = ""
        self.interval_s = _INTERVAL_S if self._is_live else _PLAIN_INTERVAL_S

    def refresh(self) -> None:
        """Print the line."""
        line = self._shown.progress_line()
        if self._is_live:
            self._stream.write(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K")
        elif line != self._last:
            self._stream.write(f"{line}\n")
        self._last = line
        self._stream.flush()

    def close(self) -> None:
        """End the line."""
        if self._is_live and self._last:
            self._stream.write("\n")
            self._stream.flush()


def live_display(shown: Shown) -> LiveDisplay:
    """Return the display for the place where this program runs."""
    ipython = sys.modules.get("IPython")  # not imported: elsewhere it is slow, and may be missing
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is not None:
        return NotebookDisplay(shown, import_module("IPython.display"))
    return TerminalDisplay(shown, sys.stderr)


def refreshed(
    poll: Callable[[], _T | None], display: LiveDisplay, now: Callable[[], float]
) -> Callable[[], _T | None]:
    """Return `poll` with a refresh of the display at intervals, and once the result is there."""
    refreshed_at = float("-inf")

    def poll_and_show() -> _T | None:
        nonlocal refreshed_at
        found = poll()
        if found is not None or now() - refreshed_at >= display.interval_s:
            refreshed_at = now()
            display.refresh()
        return found

    return poll_and_show
