"""Documents of batches: plan, progress, results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Self

from vastrun.launcher.batch.analysis import Influence, influences, pareto_front
from vastrun.launcher.batch.fleet_plan import FleetPlan
from vastrun.launcher.batch.plan import BatchPlan
from vastrun.launcher.batch.results import PointResult, finished_in
from vastrun.launcher.batch.schedule import BatchRow
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.core.batch import Batch, BatchObjective, BatchPoint, BatchProgress
from vastrun.launcher.core.runs import HIDDEN
from vastrun.launcher.ui.documents.document import Document


class PointPlan(Document):
    """A point of a batch."""

    id: str
    values: Mapping[str, Any]


class BatchPlanDocument(Document):
    """The plan of a batch, with its costs."""

    batch: str
    provider: str
    points: Sequence[PointPlan]
    count: int
    parallel: int
    expected_usd: float
    at_most_usd: float
    at_most_usd_per_run: float
    budget_usd: float | None
    least_budget_usd: float
    seconds_at_least: float | None
    refused: Sequence[str]
    """Budgets that have no room for it."""
    fleet: FleetPlan | None

    @classmethod
    def of(cls, plan: BatchPlan) -> BatchPlanDocument:
        """Make the document of a plan."""
        return cls.fill(
            plan,
            batch=plan.spec.name,
            points=[PointPlan.fill(point, values=point.shown) for point in plan.points],
            parallel=plan.spec.limits.parallel,
            at_most_usd=plan.worst_case_usd,
            at_most_usd_per_run=plan.share_usd,
            budget_usd=plan.spec.limits.usd,
            least_budget_usd=plan.share_usd,
            seconds_at_least=plan.wall_s,
            refused=list(map(str, plan.refusals)),
        )


class BatchDocument(Document, BatchProgress):
    """A batch, and how far it is."""

    name: str
    provider: str
    created_at: float
    spent_usd: float = field(metadata=HIDDEN)
    usd: float
    budget_usd: float | None
    is_driven: bool
    reason: str
    """Why it ended before its last point; empty: it did not."""
    outputs: str

    @classmethod
    def of(cls, row: BatchRow, **values: Any) -> Self:
        """Make the document of a batch. `values`: further keys of a subclass."""
        return cls.fill(
            row.progress,
            row.batch,
            row,
            usd=row.progress.spent_usd,
            budget_usd=row.batch.spec.limits.usd,
            outputs=row.batch.folder,
            **values,
        )


class PointDocument(Document, BatchPoint):
    """A point of a batch, and its runs."""

    waiting: bool
    verdict: RunVerdict | None
    runs: Sequence[str]


class BatchList(Document):
    """Every batch, the newest first."""

    batches: Sequence[BatchDocument]


class BatchDetails(BatchDocument):
    """One batch in detail."""

    points_list: Sequence[PointDocument]


class PointOutcome(Document):
    """The result of a point."""

    id: str
    number: int
    values: Mapping[str, Any]
    verdict: RunVerdict | None
    metric: float | None
    step: int
    hours: float
    usd: float
    attempts: int
    run: str | None
    host: str | None
    outputs: str | None


class Results(Document):
    """The results of a batch, best first."""

    batch: str
    provider: str
    objective: BatchObjective
    reason: str
    """Why it ended before its last point; empty: it did not."""
    points: Sequence[PointOutcome]
    pareto_front: Sequence[str]
    """Points that no other beats in both metric and cost, the cheapest first."""
    influences: Sequence[Influence]
    usd: float

    @classmethod
    def of(cls, rows: Sequence[PointResult], batch: Batch) -> Results:
        """Make the document of the results."""
        finished, objective = finished_in(rows), batch.spec.objective
        return cls.fill(
            batch,
            batch=batch.name,
            objective=objective,
            points=[
                PointOutcome.fill(
                    row,
                    row.point,
                    values=row.point.shown,
                    run=row.run and row.run.id,
                    host=row.run and row.run.host,
                    outputs=row.run and row.run.out_dir,
                )
                for row in rows
            ],
            pareto_front=[point.id for point in pareto_front(finished, objective.goal)],
            influences=influences(finished),
            usd=sum(row.usd for row in rows),
        )
