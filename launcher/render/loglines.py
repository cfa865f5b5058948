"""The merged log's lines: read, chosen and printed. Pure."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_LINE = re.compile(r"(\d+\.\d{3}) (\S+) ?(.*)")
_ERROR = re.compile(
    r"Traceback \(most recent call last\)|\b\w*(?:Error|Exception)\b:|\bFatal Python error\b|CUDA error"
    r"|NCCL WARN|Segmentation fault|(?:killed|ended) by SIG|\berror:"
)
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_CONTEXT = 40


@dataclass(frozen=True, kw_only=True)
class LogLine:
    """`<epoch.mmm> <source> <text>`."""

    at: float
    """Epoch seconds on the box."""
    source: str
    """`lease`, `NN-name`, `supervisor` or `rankN`."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which lines to show. Everything that is given must hold."""

    rank: int | None = None
    since: float | None = None
    """Epoch seconds."""
    pattern: re.Pattern[str] | None = None

    def takes(self, line: LogLine) -> bool:
        return (
            (self.rank is None or line.source == f"rank{self.rank}")
            and (self.since is None or line.at >= self.since)
            and (self.pattern is None or self.pattern.search(line.text) is not None)
        )


def parse_line(raw: str) -> LogLine | None:
    """The line as a noun; None for one that is not in the log's form."""
    match = _LINE.fullmatch(raw.rstrip("\r\n"))
    if match is None:
        return None
    at, source, text = match.groups()
    return LogLine(at=float(at), source=source, text=text)


def printable(text: str) -> str:
    """Without control characters: what a box prints must not steer the user's terminal."""
    return _CONTROL.sub("", text.rstrip("\r").rpartition("\r")[2])


def chosen(raw: Iterable[str], choice: Choice, *, tail: int | None = None) -> Iterator[LogLine]:
    """The lines that `choice` takes; of these the last `tail` only."""
    lines = (line for line in map(parse_line, raw) if line is not None and choice.takes(line))
    return lines if tail is None else iter(deque(lines, maxlen=tail))


def first_error(lines: Iterable[LogLine]) -> list[LogLine]:
    """The first line that looks like an error, and what the same source said next. Empty when none does."""
    found: list[LogLine] = []
    for line in lines:
        belongs = line.source == found[0].source if found else _ERROR.search(line.text)
        if belongs:
            found.append(line)
        if len(found) == _CONTEXT:
            break
    return found
