"""The merged log's lines: read, chosen and printed. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vastrun.launcher.gate.caps import LINE_CHARACTERS
from vastrun.launcher.gate.text import printable

_LINE = re.compile(r"(\d{1,12}\.\d{3}) (?:\[n(\d{1,2})\] )?(\S{1,40}) ?(.*)", re.ASCII | re.DOTALL)
_ERROR = re.compile(
    r"Traceback \(most recent call last\)|\b\w*(?:Error|Exception)\b:|\bFatal Python error\b|CUDA error"
    r"|NCCL WARN|Segmentation fault|(?:killed|ended) by SIG|\b(?:error|ERROR|fatal):|: command not found"
)
CONTEXT = 40
"""Lines that are shown of an error."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """`<epoch.mmm> <source> <text>`; of several nodes, with `[nN] ` before the source."""

    at: float
    """Epoch seconds on the box."""
    source: str
    """`lease`, `NN-name`, `supervisor` or `rankN`."""
    text: str
    node: int | None = None
    """Which node of the run wrote it; None: it has one only."""

    @property
    def origin(self) -> str:
        """Return who wrote it, in words: the node, if there are several, and the source."""
        return self.source if self.node is None else f"[n{self.node}] {self.source}"


@dataclass(frozen=True, kw_only=True)
class LogFilter:
    """Which lines to show. Everything that is given must hold."""

    rank: int | None = None
    since: float | None = None
    """Epoch seconds."""

    def takes(self, line: LogLine) -> bool:
        return (self.rank is None or line.source == f"rank{self.rank}") and (
            self.since is None or line.at >= self.since
        )


def parse_line(raw: str) -> LogLine | None:
    """Parse the line; None for one that is not in the log's form."""
    match = _LINE.fullmatch(raw.rstrip("\r\n"))
    if match is None:
        return None
    at, node, source, text = match.groups()
    return LogLine(at=float(at), source=source, text=text, node=None if node is None else int(node))


def lines_of(text: str) -> list[str]:
    """Split a part of the log at its line ends, and at nothing else that some take for one."""
    return text.removesuffix("\n").split("\n") if text else []


def shown(text: str) -> str:
    """Return a line as a terminal would leave it: of a progress bar, its last state."""
    return printable(text.rstrip("\r").rpartition("\r")[2][:LINE_CHARACTERS])


def chosen(raw: Iterable[str], choice: LogFilter, *, tail: int | None = None) -> Iterator[LogLine]:
    """Return the lines that `choice` takes; of these the last `tail` only."""
    lines = (line for line in map(parse_line, raw) if line is not None and choice.takes(line))
    return lines if tail is None else iter(deque(lines, maxlen=tail))


def first_error(lines: Iterable[LogLine], step: str = "") -> list[LogLine]:
    """Find the first line that looks like an error, with what the same source said next. May be empty.

    `step`: the onstart step that failed; an error elsewhere did not end the run, and is passed over.
    """
    found: list[LogLine] = []
    for line in lines:
        blamed = found[0].source if found else step
        belongs = (not blamed or line.source == blamed) and (found or _ERROR.search(line.text))
        if belongs:
            found.append(line)
        if len(found) == CONTEXT:
            break
    return found


def remembered(lines: Iterable[LogLine], last: Mapping[str, deque[LogLine]]) -> Iterator[LogLine]:
    """Yield the lines; each is noted in `last` under its source, and under "" with all others."""
    for line in lines:
        for source in ("", line.source):
            if source in last:
                last[source].append(line)
        yield line
