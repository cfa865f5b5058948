"""Lines of the merged log: parse, filter, find errors. Pure."""

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
"""Maximum lines of an error."""


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """A line `<epoch.mmm> <source> <text>`; with several nodes, `[nN] ` comes before the source."""

    at: float
    """Epoch seconds by the machine's clock."""
    source: str
    """`lease`, `NN-name`, `supervisor` or `rankN`."""
    text: str
    node: int | None = None
    """Node that wrote it; None if the run has only one."""

    @property
    def origin(self) -> str:
        """Return the source, after the node if there are several."""
        return self.source if self.node is None else f"[n{self.node}] {self.source}"


@dataclass(frozen=True, kw_only=True)
class LogFilter:
    """Conditions that a line must meet to be shown."""

    rank: int | None = None
    since: float | None = None
    """Epoch seconds."""

    def takes(self, line: LogLine) -> bool:
        return (self.rank is None or line.source == f"rank{self.rank}") and (
            self.since is None or line.at >= self.since
        )


def parse_line(raw: str) -> LogLine | None:
    """Parse a line; None if it is not in the form of the log."""
    match = _LINE.fullmatch(raw.rstrip("\r\n"))
    if match is None:
        return None
    at, node, source, text = match.groups()
    return LogLine(at=float(at), source=source, text=text, node=None if node is None else int(node))


def lines_of(text: str) -> list[str]:
    """Split text at newlines only; str.splitlines would split at other characters, too."""
    return text.removesuffix("\n").split("\n") if text else []


def shown(text: str) -> str:
    """Return a line as a terminal would show it: only the last state of a progress bar."""
    return printable(text.rstrip("\r").rpartition("\r")[2][:LINE_CHARACTERS])


def chosen(raw: Iterable[str], choice: LogFilter, *, tail: int | None = None) -> Iterator[LogLine]:
    """Return the lines that pass the filter, or only the last `tail` of them."""
    lines = (line for line in map(parse_line, raw) if line is not None and choice.takes(line))
    return lines if tail is None else iter(deque(lines, maxlen=tail))


def first_error(lines: Iterable[LogLine], step: str = "") -> list[LogLine]:
    """Return the first line that looks like an error, with the following lines of its source; or nothing.

    `step`: the failed onstart step; errors of other sources are ignored.
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
    """Yield the lines, and collect them in `last` by source, and all under ""."""
    for line in lines:
        for source in ("", line.source):
            if source in last:
                last[source].append(line)
        yield line


def machine_lines(head: str) -> list[str]:
    """Return the lines of a log's begin about the machine's GPUs, drivers, disk and network."""
    lines = [line for line in map(parse_line, lines_of(head)) if line is not None]
    return [shown(line.text) for line in lines if line.source in ("10-check-gpu", "20-check-comm")][:24]
