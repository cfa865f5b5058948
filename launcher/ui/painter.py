"""Painter: lines on a terminal that are repainted in place, with other output printed above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress

from vastrun.launcher.ui.question import HeldStream
from vastrun.launcher.ui.render.live import Line, cut, width_of
from vastrun.launcher.ui.screen import size

_UP, _ERASE_BELOW, _PLAIN = "\x1b[{}A", "\x1b[J", "\x1b[0m"
_NO_WRAP, _WRAP = "\x1b[?7l", "\x1b[?7h"
"""Codes for wrapping, which is off in a painted line: terminals differ in the width of some emoji."""
_CODES: Mapping[str, str] = {"bold": "\x1b[1m", "dim": "\x1b[2m", "done": "\x1b[32m", "now": "\x1b[1;36m"}


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
        text = "\n".join("".join(_styled(*span) for span in line) for line in fitting)
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


def _styled(text: str, style: str) -> str:
    return f"{_CODES[style]}{text}{_PLAIN}" if style else text
