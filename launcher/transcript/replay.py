"""Replay: shows what the launchers of a transcript showed and asked, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vastrun.launcher.core import Event
from vastrun.launcher.ports import Screen
from vastrun.launcher.transcript.reader import (
    CallEntry,
    DriveStart,
    Entry,
    LoggedEvent,
    phase_of,
)


def began_at(entries: Iterable[Entry]) -> float:
    """Return from when the screen counted."""
    begin = next((entry for entry in entries if isinstance(entry, DriveStart)), None)
    return 0.0 if begin is None else begin.shown_since or begin.run.created_at


def replay(entries: Iterable[Entry], screen: Screen, show_call: Callable[[CallEntry], None] | None) -> None:
    """Show the events and, with `show_call`, the calls."""
    run_id = ""
    for entry in entries:
        if isinstance(entry, DriveStart):
            run_id = entry.run.id
        elif isinstance(entry, LoggedEvent):
            phase = phase_of(entry.phase)
            screen.report(Event(run_id=run_id, at=entry.at, phase=phase, text=entry.text, usd=entry.usd))
        elif isinstance(entry, CallEntry) and show_call is not None:
            show_call(entry)
