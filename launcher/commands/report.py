"""Read models of a report: all that is shown of one run, and what two runs are compared by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vastrun.launcher.commands.chains import chain_of
from vastrun.launcher.commands.queries import Explanation, RunRow, diary_of, explain, row_of
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Event, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.comparison import ComparedRun
from vastrun.launcher.decisions.timeline import PhaseSpan, timeline_of
from vastrun.launcher.gate.pictures import Picture
from vastrun.launcher.gate.series import Series
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.report_files import log_head, log_tail, pictures_in, series_in, stack_in
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
    outcome = explanation.outcome
    return RunReport(
        explanation=explanation,
        spec=spec,
        events=events,
        attempts=[row_of(ledger, attempt, now) for attempt in chain_of(ledger, run)],
        spans=timeline_of(
            run,
            [event for event in events if not event.told],
            trained_until=None if outcome is None else outcome.ended_at,
            usd=explanation.row.usd,
            now=now,
        ),
        series=series_in(outputs),
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
            **{f"scores.{name}": value for name, value in scores.items()},
        },
    )
