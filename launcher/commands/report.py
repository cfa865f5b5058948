"""Data of a report: all that is shown of one run, its timeline, and what two runs are compared by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vastrun.launcher.commands.chains import lineage_of
from vastrun.launcher.commands.explanation import Explanation, explain
from vastrun.launcher.commands.queries import RunRow, diary_of, row_of
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Phase, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.comparison import ComparedRun
from vastrun.launcher.gate.metrics import Series
from vastrun.launcher.gate.pictures import Picture
from vastrun.launcher.outputs.folder import Outputs, lost_metrics
from vastrun.launcher.outputs.index import log_head, log_tail, pictures_in, series_in, stack_in
from vastrun.launcher.ports import Ledger


@dataclass(frozen=True, kw_only=True)
class RunReport:
    """One run, as its page shows it."""

    explanation: Explanation
    spec: JobSpec
    events: Sequence[Event]
    attempts: Sequence[RunRow]
    """Attempts up to and including this run."""
    spans: Sequence[PhaseSpan]
    series: Sequence[Series]
    pictures: Mapping[str, Picture] = field(default_factory=dict)
    log_head: str = ""
    log_tail: str = ""
    """The begin and the end of its log, as it was downloaded."""
    stack: str = ""
    """Stack of the rank that hung."""
    made_at: float

    @property
    def row(self) -> RunRow:
        return self.explanation.row

    @property
    def run(self) -> Run:
        return self.row.run


def report_of(ledger: Ledger, run: Run, now: float) -> RunReport:
    """Return what is known of the run. Reads the ledger and its outputs; asks no machine."""
    outputs = Outputs(run)
    explanation, spec, events = explain(ledger, run, now), read_job(run.spec_json), diary_of(ledger, run)
    outcome, lineage = explanation.outcome, lineage_of(ledger, run)
    return RunReport(
        explanation=explanation,
        spec=spec,
        events=events,
        attempts=[row_of(ledger, attempt, now) for attempt in lineage],
        spans=timeline_of(
            run,
            [event for event in events if not event.told],
            trained_until=None if outcome is None else outcome.ended_at,
            usd=explanation.row.usd,
            now=now,
        ),
        series=series_in(*map(Outputs, lineage)),
        pictures=pictures_in(outputs),
        log_head=log_head(outputs),
        log_tail=log_tail(outputs),
        stack="" if outcome is None or outcome.hang is None else stack_in(outputs, outcome.hang.rank),
        made_at=now,
    )


def comparison_of(ledger: Ledger, run: Run, now: float) -> ComparedRun:
    """Return what the run is compared by: its job, its end, its scores and the last of each metric."""
    outputs, row = Outputs(run), row_of(ledger, run, now)
    outcome = outputs.outcome()
    scores = (outcome.scores if outcome else None) or {}
    return ComparedRun(
        run=run,
        spec=read_job(run.spec_json),
        cost=row.cost,
        usd_per_hour=row.usd_per_hour,
        seconds=(run.ended_at or now) - run.created_at,
        metrics={
            **{series.name: series.last for series in series_in(outputs)},
            **dict.fromkeys(lost_metrics(outputs.folder), "nan"),
            **{f"scores.{name}": value for name, value in scores.items()},
        },
        code=outputs.code(),
        packages=(outcome.packages if outcome else None) or {},
    )


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
