"""Read model of a batch's report: its points, what they came to, and a curve of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vastrun.launcher.batch.results import PointResult, finished_in, results_of, row_in
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.decisions.analysis import FinishedPoint, Influence, influences, pareto_front
from vastrun.launcher.decisions.schedule import BatchProgress
from vastrun.launcher.gate.series import Series
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.outputs.report_files import series_in
from vastrun.launcher.ports import Ledger

_LINES = 2000
"""Number of metric lines read for each run: ten times the points of a curve."""
_LOSS = "loss"


@dataclass(frozen=True, kw_only=True)
class BatchReport:
    """One batch, as its page shows it."""

    batch: Batch
    progress: BatchProgress
    results: Sequence[PointResult]
    """The best first."""
    front: Sequence[FinishedPoint]
    influences: Sequence[Influence]
    curve_name: str
    curves: Mapping[str, Series]
    """Series by the id of the point."""
    made_at: float


def batch_report_of(ledger: Ledger, name: str, now: float) -> BatchReport:
    """Return what is known of the batch. Raises UsageError when there is none of that name."""
    row = row_in(ledger, name, now)
    batch = row.batch
    results = results_of(row.states, batch.spec.objective, now)
    finished = finished_in(results)
    curve_name = _curve_name(batch)
    return BatchReport(
        batch=batch,
        progress=row.progress,
        results=results,
        front=pareto_front(finished, batch.spec.objective.goal),
        influences=influences(finished),
        curve_name=curve_name,
        curves=_curves(results, curve_name),
        made_at=now,
    )


def _curve_name(batch: Batch) -> str:
    """Return the name of the curve: the objective where it is logged by step, else the loss."""
    metric = batch.spec.objective.metric
    return _LOSS if metric.startswith("scores.") else metric


def _curves(results: Sequence[PointResult], name: str) -> dict[str, Series]:
    found: dict[str, Series] = {}
    for row in results:
        if row.run is not None:
            series = series_in(Outputs(row.run), {name}, _LINES)
            found.update((row.point.id, one) for one in series)
    return found
