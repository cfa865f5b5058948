"""Results: a batch as a table of its points, by the metric that it was started for, and the data of its
report.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.batch.schedule import BatchRow, PointState, holding_runs, progress_of_batch, states_of
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cause, Run, Verdict
from vastrun.launcher.core.batch import Batch, BatchObjective, BatchPoint, BatchProgress
from vastrun.launcher.core.bills import cost_usd, rented_seconds
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.decisions.policy import START_S
from vastrun.launcher.gate.metrics import Series
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.index import series_in
from vastrun.launcher.ports import Ledger

_SCORES = "scores."
_LINES = 2000
"""Number of metric lines read for each run: ten times the points of a curve."""
SHORT_S = 600.0
"""Seconds of a machine's life below which its start and its bill's tail are much of its cost."""


@dataclass(frozen=True, kw_only=True)
class PointResult:
    """Result of one point."""

    point: BatchPoint
    run: Run | None
    """Its last attempt; None: it was not started."""
    verdict: Verdict | None
    metric: float | None
    """Value of the objective; None: unknown, not yet known, or diverged."""
    diverged: bool = False
    """Its last value is not a finite number."""
    step: int
    hours: float
    """All attempts together, from rent to release."""
    usd: float
    attempts: int
    restart_usd: Sequence[float] = ()
    """USD of start and bill's tail of each machine that only this point had, and for less than SHORT_S."""

    @property
    def state(self) -> str:
        """Return its verdict, `running` or `waiting`."""
        return str(self.verdict) if self.verdict else "waiting" if self.run is None else "running"


def results_of(states: Sequence[PointState], objective: BatchObjective, now: float) -> list[PointResult]:
    """Return a row for each point, the best first; then those without the metric, then the diverged ones.

    Where the points do not have the same code, it is one of their values.
    """
    codes = [read_job(state.point.spec_json).code_digest for state in states]
    if len(set(codes)) > 1:
        states = [
            replace(
                state, point=replace(state.point, values={**state.point.values, "code": (code or "?")[:7]})
            )
            for state, code in zip(states, codes, strict=True)
        ]
    rows, sign = [_result(state, objective, now) for state in states], 1 if objective.goal == "min" else -1
    return sorted(rows, key=lambda row: (row.diverged, row.metric is None, sign * (row.metric or 0.0)))


def _result(state: PointState, objective: BatchObjective, now: float) -> PointResult:
    value = None if state.last is None else metric_of(state.last, objective.metric)
    diverged = value is not None and math.isnan(value)
    rented = [run for run in state.rows if run.released_at is not None and run.provider != POOL]
    return PointResult(
        point=state.point,
        run=state.last,
        verdict=state.verdict,
        metric=None if diverged else value,
        diverged=diverged,
        step=0 if state.last is None else state.last.step,
        hours=sum(rented_seconds(run, now) for run in state.rows) / 3600,
        usd=sum(cost_usd(run, now) for run in state.rows),
        attempts=len(state.runs),
        restart_usd=[_restart_usd(run) for run in rented if rented_seconds(run, 0.0) < SHORT_S],
    )


def _restart_usd(run: Run) -> float:
    """Return what another run on the same machine would not have cost again, in USD."""
    # While it loads, only its disk is charged.
    start_usd = (run.boot_s or 0.0) * run.meter.extras.storage_usd_per_hour / 3600
    tail_s = run.charged.tail_s if run.charged is not None else run.offer and run.offer.bill_tail_s
    return start_usd + (START_S + (tail_s or 0.0)) * run.usd_per_hour / 3600


def metric_of(run: Run, name: str) -> float | None:
    """Return the run's `scores.NAME`, or the last value of NAME in its metrics.

    None where it has none, NaN where the run diverged: a value before does not count then.
    """
    outputs = Outputs(run)
    if run.cause is Cause.DIVERGED:
        return math.nan
    if not name.startswith(_SCORES):
        curve = outputs.curve(name)
        return curve[-1][1] if curve else None
    outcome, name = outputs.outcome(), name.removeprefix(_SCORES)
    scores: dict[str, float] = (outcome.scores if outcome else None) or {}
    # The record lacks the errors of rollouts that diverged, since JSON has no infinity.
    is_lost = name not in scores and scores.get(f"{name.rpartition('_')[0]}_diverged")
    return math.nan if is_lost else scores.get(name)


@dataclass(frozen=True, kw_only=True)
class SameResults:
    """Points whose programs reported the same to the last digit, although their values differ."""

    points: Sequence[int]
    """Numbers of the points."""
    keys: Sequence[str]
    """Keys of the values in which they differ."""


def same_results(rows: Iterable[PointResult], objective: BatchObjective) -> list[SameResults]:
    """Return the groups of ended points with the same results, by number.

    Compares all values of the metric and of the loss. A curve of one value says nothing: two programs that
    differ may both end with an accuracy of 1.
    """
    known = [row for row in rows if row.verdict is not None and (row.metric is not None or row.diverged)]
    often = Counter(row.metric for row in known)
    points_by_curves = defaultdict[object, list[BatchPoint]](list)
    for row in sorted(known, key=lambda row: row.point.number):
        if often[row.metric] > 1 and (curves := _curves_text(row, {objective.metric, "loss"})):
            points_by_curves[row.metric, curves].append(row.point)
    return [
        SameResults(points=[point.number for point in points], keys=_differing_keys(points))
        for points in points_by_curves.values()
        if len(points) > 1
    ]


def _curves_text(row: PointResult, names: Iterable[str]) -> str:
    """Return the curves of a point, to compare; empty where none has two values."""
    curves = [Outputs(row.run).curve(name) for name in sorted(names)] if row.run else []
    is_comparable = any(len({value for _, value in curve if math.isfinite(value)}) > 1 for curve in curves)
    return repr(curves) if is_comparable else ""


def _differing_keys(points: Sequence[BatchPoint]) -> list[str]:
    keys = dict.fromkeys(key for point in points for key in point.values)
    return [key for key in keys if len({repr(point.values.get(key)) for point in points}) > 1]


def states_in(ledger: Ledger, name: str) -> list[PointState]:
    """Return the points of a batch with their runs, by number."""
    return states_of(ledger.batches.points(name), ledger.runs(batch=name, members=True))


def row_in(ledger: Ledger, name: str, now: float) -> BatchRow:
    """Return a batch, its points, and how far it is. Raises UsageError when there is none of that name."""
    batch, points = ledger.batches.get(name), ledger.batches.points(name)
    runs = ledger.runs(batch=name, members=True)
    states = states_of(points, runs)
    progress = progress_of_batch(states, ledger.batches.held_usd(name), now, holding_runs(runs))
    return BatchRow(batch=batch, states=states, progress=progress, is_driven=ledger.batches.is_driven(name))


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """One batch, as its page shows it."""

    batch: Batch
    progress: BatchProgress
    results: Sequence[PointResult]
    """The best first."""
    same: Sequence[SameResults]
    curve_name: str
    curves: Mapping[str, Series]
    """Series by the id of the point."""
    made_at: float


def batch_report_of(ledger: Ledger, name: str, now: float) -> BatchReport:
    """Return what is known of the batch. Raises UsageError when there is none of that name."""
    row = row_in(ledger, name, now)
    batch = row.batch
    results = results_of(row.states, batch.spec.objective, now)
    metric = batch.spec.objective.metric
    curve_name = "loss" if metric.startswith("scores.") else metric
    runs = [(one.point.id, one.run) for one in results if one.run is not None]
    series = ((id_, series_in(Outputs(run), names={curve_name}, max_lines=_LINES)) for id_, run in runs)
    return BatchReport(
        batch=batch,
        progress=row.progress,
        results=results,
        same=same_results(results, batch.spec.objective),
        curve_name=curve_name,
        curves={id_: one for id_, found in series for one in found},
        made_at=now,
    )
