"""A transcript read again: entries by kind. It may be a stranger's: every value is bounded and checked."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Any

from vastrun.contract.records import MaxLength, Range, RecordError, Text, parse_json, read_as
from vastrun.launcher.core import Phase
from vastrun.launcher.gate import caps
from vastrun.launcher.transcript.recorder import MAX_BYTES

EpochSeconds = Annotated[float, Range(0, 1e11)]
Usd = Annotated[float, Range(0, 1e9)]
Name = Annotated[str, Text(200)]
Line = Annotated[str, Text(2000)]


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """Run as it was when a launcher began to drive it."""

    id: Name
    created_at: EpochSeconds


@dataclass(frozen=True, kw_only=True)
class DriveStart:
    """A launcher takes the run."""

    at: EpochSeconds
    run: RecordedRun
    shown_since: EpochSeconds = 0.0
    """From when its screen counted; 0: not said."""


@dataclass(frozen=True, kw_only=True)
class LoggedEvent:
    """Something that was shown as an event."""

    at: EpochSeconds
    phase: Name
    text: Line
    usd: Usd = 0.0


@dataclass(frozen=True, kw_only=True)
class RaisedError:
    """An error that ended a call."""

    type: Name
    text: Line


@dataclass(frozen=True, kw_only=True)
class CallEntry:
    """A call to the provider, the box or the account."""

    at: EpochSeconds
    verb: Name
    about: Annotated[dict[str, Any], MaxLength(100)] = field(default_factory=dict)
    took_s: Annotated[float, Range(0, 1e9)] = 0.0
    answer: Any = None
    error: RaisedError | None = None
    alike: Annotated[int, Range(0, 1e12)] = 0
    """Number of equal calls before this one that were not written."""


@dataclass(frozen=True, kw_only=True)
class DriveEnd:
    """The launcher let go of the run."""

    at: EpochSeconds
    calls: Annotated[dict[str, int], MaxLength(1000)] = field(default_factory=dict)
    guard_gap_s: Annotated[float, Range(0, 1e9)] = 0.0
    """Longest time between two looks of the launcher's guard, for all of its runs; 0: unknown."""


Entry = DriveStart | LoggedEvent | CallEntry | DriveEnd
KINDS: Mapping[str, Any] = {
    "begin": DriveStart,
    "event": LoggedEvent,
    "call": CallEntry,
    "end": DriveEnd,
}


def entries_of(lines: Iterable[bytes], run_id: str = "") -> list[Entry]:
    """Return the entries, in their order; of that run only, where one is named.

    A line that cannot be read is left out: the last one of a launcher that was killed may be half.
    """
    found: list[Entry] = []
    is_selected = True
    for entry in _read(lines):
        if isinstance(entry, DriveStart):
            is_selected = run_id in ("", entry.run.id)
        if is_selected:
            found.append(entry)
    return found


def lines_of(lines: Iterable[bytes], run_id: str) -> Iterator[bytes]:
    """Yield those lines of a file that are of the run, as they are."""
    is_selected = False
    for line in lines:
        entry = _entry(line)
        if isinstance(entry, DriveStart):
            is_selected = entry.run.id == run_id
        if is_selected:
            yield line


def _read(lines: Iterable[bytes]) -> Iterator[Entry]:
    left = 2 * MAX_BYTES
    for line in islice(lines, caps.TRANSCRIPT_LINES):
        left -= len(line)
        if left < 0:
            return
        entry = _entry(line)
        if entry is not None:
            yield entry


def _entry(line: bytes) -> Entry | None:
    if len(line) > caps.TRANSCRIPT_LINE_BYTES:
        return None
    try:
        values = parse_json(line)
        kind = KINDS.get(values.get("kind", "")) if isinstance(values, dict) else None
        entry: Entry | None = None if kind is None else read_as(kind, values)
    except (RecordError, TypeError):
        return None
    return entry


def phase_of(name: str) -> Phase:
    """Return the phase of that name; that of an ended run where this vastrun knows none."""
    return Phase(name) if name in set(Phase) else Phase.ENDED
