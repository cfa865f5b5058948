"""Rank logs: merge the output of every rank into `run/run.log`, and extract the last lines of one.

A line is `<epoch.mmm> <source> <text>`. Other programs append to the same file, so each write is one system
call of whole lines. Standard library only.
"""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vastrun.contract.texts import hide_in_command
from vastrun.onstart.optional_files import read_end, size_of

_MAX_CHARACTERS = 300
"""Maximum length of one line; the log has the whole line."""
_RANK_PREFIX = re.compile(r"^\[rank\d+\]: ?")
"""Prefix that torch puts before a line once a process group exists."""

SUPERVISOR = "supervisor"
_MAX_LINE_BYTES = 8192
_END_BYTES = 1 << 18
"""Last bytes of a rank's output that are added where there is no time for all of it."""


@dataclass(kw_only=True)
class Tail:
    """Reads the new lines of a growing file."""

    path: Path
    source: str
    offset: int = 0
    clock: Callable[[], float] = time.monotonic
    _partial: bytes = b""
    _shown: bytes | None = None
    """State of the incomplete line when it was last shown; None: it was not shown."""
    _shown_at: float = -math.inf

    def lines(self) -> Iterator[str]:
        """Yield new complete lines, at most one chunk of them, and the state of a progress bar.

        A bar uses carriage returns, and may have no line break for hours: it is shown once a second.
        """
        *whole, self._partial = (self._partial + self._read()).split(b"\n")
        if b"\r" in self._partial:  # drop overwritten text; more may follow, or overwrite the rest
            self._partial = b"\r" + _state(self._partial) + (b"\r" if self._partial.endswith(b"\r") else b"")
        if len(self._partial) > _MAX_LINE_BYTES:
            whole, self._partial = [*whole, self._partial], b""
        for line in whole:
            yield from self._ended(line)
        if b"\r" in self._partial and self.clock() - self._shown_at >= 1.0:
            state = _state(self._partial)
            if state and state != self._shown:
                self._shown, self._shown_at = state, self.clock()
                yield from as_text(state)

    def last_line(self) -> Iterator[str]:
        """Yield the text after the last newline."""
        partial, self._partial = self._partial, b""
        yield from self._ended(partial) if partial else ()

    def _ended(self, line: bytes) -> Iterator[str]:
        """Yield a finished line, unless its last state was shown already."""
        shown, self._shown = self._shown, None
        yield from as_text(line) if shown is None or _state(line) != shown else ()

    def skip_to_end(self) -> int:
        """Skip all but the last unread lines, and return the number of skipped bytes."""
        left_out = size_of(self.path) - _END_BYTES - self.offset
        if left_out <= 0:
            return 0
        self.offset += left_out
        # The incomplete line is dropped, and the first line of the rest is cut off.
        self._partial, self._shown = b"", None
        with self.path.open("rb") as file:
            file.seek(self.offset)
            cut = len(file.readline(_END_BYTES))
        self.offset += cut
        return left_out + cut

    def _read(self) -> bytes:
        with contextlib.suppress(FileNotFoundError):
            # Polled ten times a second, and seldom grows: opening it takes four times as long.
            if self.path.stat().st_size > self.offset:
                with self.path.open("rb") as file:
                    file.seek(self.offset)
                    new = file.read(1 << 18)
                    self.offset += len(new)
                    return new
        return b""


@dataclass(kw_only=True)
class MergedLog:
    """The log of the whole run, with the output of the ranks and the supervisor."""

    path: Path
    tails: tuple[Tail, ...] = ()
    _printed_at: float | None = None

    @property
    def silent_s(self) -> float | None:
        """Seconds since any rank printed something; None: none did."""
        return None if self._printed_at is None else time.monotonic() - self._printed_at

    def follow(self, tails: tuple[Tail, ...]) -> None:
        """Read these from now on; none of them has printed anything yet."""
        self.tails, self._printed_at = tails, None

    def say(self, text: str) -> None:
        """Write a line as the supervisor, without the secrets that a command or a URL in it has."""
        self._append(SUPERVISOR, hide_in_command(text).rstrip("\n").split("\n"))

    def pump(self) -> None:
        """Add new lines of the ranks to the log."""
        for tail in self.tails:
            before = tail.offset
            self._append(tail.source, tail.lines())
            if tail.offset != before and tail.source != SUPERVISOR:
                self._printed_at = time.monotonic()

    def drain(self, *, within_s: float) -> None:
        """Add the rest of the ranks' output to the log.

        After `within_s` seconds only the end of an output is added, after a line that names the complete
        file.
        """
        deadline = time.monotonic() + within_s
        for tail in self.tails:
            self._drain(tail, deadline)
            if left_out := tail.skip_to_end():
                raw = f"{tail.path.parent.name}/{tail.path.name}"
                self.say(
                    f"{tail.source}: {left_out / 1e6:.1f} MB of its output are skipped; all of it is in {raw}"
                )
                self._drain(tail, math.inf)
            self._append(tail.source, tail.last_line())

    def _drain(self, tail: Tail, deadline: float) -> None:
        before = -1
        while tail.offset != before and time.monotonic() < deadline:
            before = tail.offset
            self._append(tail.source, tail.lines())

    def _append(self, source: str, lines: Iterable[str]) -> None:
        text = "".join(f"{time.time():.3f} {source} {line}\n" for line in lines)
        if not text:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A full disk must not end the training: the raw logs exist, too.
        with contextlib.suppress(OSError), self.path.open("ab", buffering=0) as log:
            log.write(text.encode(errors="replace"))  # names of files may be no Unicode


def _state(line: bytes) -> bytes:
    """Return the visible part of a line: the text after its last carriage return, trailing ones ignored."""
    return line.rstrip(b"\r").rpartition(b"\r")[2]


def as_text(line: bytes) -> Iterator[str]:
    """Yield the line as a terminal would show it, with the last state of a progress bar.

    A very long line is split.
    """
    text = _state(line).decode("utf-8", errors="replace")
    for start in range(0, max(len(text), 1), _MAX_LINE_BYTES):
        yield text[start : start + _MAX_LINE_BYTES]


def last_lines(log: Path) -> str | None:
    """Return the last non-empty lines of a log, as a terminal would show them; None without any."""
    found: list[str] = []
    for line in reversed(read_end(log, 1 << 14).split(b"\n")):
        text = _RANK_PREFIX.sub("", next(iter(as_text(line)))).rstrip()
        if text:
            found.append(text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…")
        if len(found) == 12:
            break
    return "\n".join(reversed(found)) or None
