"""Timeline: duration and cost of each phase of a run, from its diary. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vastrun.launcher.core import Event, Phase, Run


@dataclass(frozen=True, kw_only=True)
class PhaseSpan:
    """A phase of a run, from its start to its end."""

    phase: Phase
    start: float
    end: float
    """Epoch seconds."""
    usd: float
    """USD spent in it."""

    @property
    def seconds(self) -> float:
        return self.end - self.start


def timeline_of(
    run: Run, events: Sequence[Event], *, trained_until: float | None, usd: float, now: float
) -> list[PhaseSpan]:
    """Return the phases that the run went through, in order, without gaps.

    A phase ends with its last event. Of the training, the box says when it ended (`trained_until`), which
    counts between the last event of the training and the first one after it. `usd`: what the run cost so far.
    """
    phases = [phase for phase in Phase if any(event.phase is phase for event in events)]
    phases = [phase for phase in phases if phase is not Phase.ENDED]
    end = run.ended_at or now
    marks = [(run.created_at, 0.0)]
    for number, phase in enumerate(phases):
        mark = max((event.at, event.usd) for event in events if event.phase is phase)
        if number == len(phases) - 1:
            mark = (end, usd)
        elif phase is Phase.TRAIN and trained_until is not None:
            after = min((event.at, event.usd) for event in events if event.phase is phases[number + 1])
            mark = _between(mark, after, trained_until)
        # A clock that was set, and a machine that became cheaper afterwards, take nothing back.
        marks.append((max(mark[0], marks[-1][0]), min(usd, max(mark[1], marks[-1][1]))))
    return [
        PhaseSpan(phase=phase, start=start, end=end, usd=end_usd - start_usd)
        for phase, (start, start_usd), (end, end_usd) in zip(phases, marks, marks[1:], strict=False)
    ]


def _between(mark: tuple[float, float], after: tuple[float, float], moment: float) -> tuple[float, float]:
    """Return the moment, clamped between the two, with the USD spent by then."""
    (start, start_usd), (end, end_usd) = mark, after
    if not start < moment < end:
        return mark
    return moment, start_usd + (end_usd - start_usd) * (moment - start) / (end - start)
