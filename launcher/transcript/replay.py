"""Replay: shows a transcript on the screen again, with its timing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from vastrun.contract.records import RecordError, read_as
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Event, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.ports import Screen
from vastrun.launcher.transcript.reader import (
    CallEntry,
    DriveStart,
    Entry,
    LogChunk,
    LoggedEvent,
    RowChange,
    RunSnapshot,
    drives_in,
    phase_of,
)
from vastrun.launcher.transcript.recorded import PROGRESS_S

_MAX_NUMBER = 1e11
DISPLAY_INTERVAL_S = 1.0
"""Seconds between two updates of the progress line."""


class ReplayClock:
    """The moment that is shown. `sleep` is asked to let time pass; speed 0: none does."""

    def __init__(self, at: float, speed: float, sleep: Callable[[float], None]) -> None:
        self._at, self._speed, self._sleep = at, speed, sleep

    def now(self) -> float:
        """Return the moment, in epoch seconds."""
        return self._at

    def move(self, at: float) -> None:
        """Let time pass until that moment."""
        if self._speed and at > self._at:
            self._sleep((at - self._at) / self._speed)
        self.jump(at)

    def jump(self, at: float) -> None:
        """Be at that moment at once."""
        self._at = max(self._at, at)


def began_at(entries: Sequence[Entry]) -> float:
    """Return from when the screen counted."""
    begin = next((entry for entry in entries if isinstance(entry, DriveStart)), None)
    return 0.0 if begin is None else begin.shown_since or begin.run.created_at


def replay(
    entries: Sequence[Entry],
    screen: Screen,
    clock: ReplayClock,
    show_call: Callable[[CallEntry], None] | None,
) -> None:
    """Show what the launchers showed, with their timing. `show_call` shows a call; None: calls are not
    shown.
    """
    for drive in drives_in(entries):
        begin = drive[0]
        assert isinstance(begin, DriveStart)
        clock.jump(begin.at)  # no launcher looked in between
        _replay_drive(drive, _run_of(begin), screen, clock, show_call)


def _replay_drive(
    drive: Sequence[Entry],
    run: Run,
    screen: Screen,
    clock: ReplayClock,
    show_call: Callable[[CallEntry], None] | None,
) -> None:
    snapshot: RunSnapshot | None = None
    money = _money_in(drive)
    for entry in drive:
        if snapshot is not None:
            for at in _ticks(snapshot.at, clock.now(), entry.at):
                clock.move(at)
                screen.progress(_at(run, snapshot), snapshot.progress, usd=money(at))
        clock.move(entry.at)
        if isinstance(entry, RowChange):
            run = _changed(run, entry.changes)
        elif isinstance(entry, LoggedEvent):
            phase = phase_of(entry.phase)
            event = Event(run_id=run.id, at=entry.at, phase=phase, text=entry.text, usd=entry.usd)
            screen.report(event)
        elif isinstance(entry, LogChunk):
            screen.log(entry.text)
        elif isinstance(entry, RunSnapshot):
            if snapshot is not None:  # a launcher shows it once more while it asks for the next one
                screen.progress(_at(run, snapshot), snapshot.progress, usd=money(entry.at))
            snapshot = entry
            screen.progress(_at(run, snapshot), snapshot.progress, usd=entry.usd)
        elif isinstance(entry, CallEntry) and show_call is not None:
            show_call(entry)


def _ticks(since: float, after: float, until: float) -> Iterator[float]:
    """The moments between, a second each from `since`, at which a launcher showed where the run stood.

    Not for longer than until it would have been written down again.
    """
    until = min(until, since + PROGRESS_S + DISPLAY_INTERVAL_S)
    number = max(0, int((after - since) / DISPLAY_INTERVAL_S)) + 1
    while since + number * DISPLAY_INTERVAL_S < until:
        yield since + number * DISPLAY_INTERVAL_S
        number += 1


def _money_in(drive: Sequence[Entry]) -> Callable[[float], float]:
    """Return the run's cost over time, interpolated linearly between known moments."""
    known = sorted((entry.at, entry.usd) for entry in drive if isinstance(entry, RunSnapshot | LoggedEvent))

    def at(moment: float) -> float:
        place = bisect_left(known, (moment, 0.0))
        (since, before), (until, after) = known[max(0, place - 1)], known[min(place, len(known) - 1)]
        share = 0.0 if until <= since else (moment - since) / (until - since)
        return before + min(1.0, max(0.0, share)) * (after - before)

    return at


def _run_of(begin: DriveStart) -> Run:
    then = begin.run
    return Run(
        id=then.id,
        job=then.job,
        spec_json=dump_job(_job_of(begin.job)),
        provider=then.provider,
        phase=phase_of(then.phase),
        out_dir="",
        created_at=then.created_at,
        phase_at=begin.at,
        usd_per_hour=then.usd_per_hour,
    )


def _job_of(values: Mapping[str, Any]) -> JobSpec:
    """The job, as far as this vastrun reads it: a view needs no more than its limits."""
    try:
        job: JobSpec = read_as(JobSpec, dict(values))
    except (RecordError, KeyError, TypeError):
        return JobSpec(name="job")
    return job


def _changed(run: Run, changes: Mapping[str, Any]) -> Run:
    phase = changes.get("phase")
    return replace(
        run,
        phase=phase_of(phase) if isinstance(phase, str) else run.phase,
        phase_at=_number(changes.get("phase_at"), run.phase_at),
        usd_per_hour=_number(changes.get("usd_per_hour"), run.usd_per_hour),
    )


def _number(value: Any, former: float) -> float:
    """A new value, where it is one."""
    is_one = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MAX_NUMBER
    return float(value) if is_one else former


def _at(run: Run, snapshot: RunSnapshot) -> Run:
    return replace(run, phase=phase_of(snapshot.phase))
