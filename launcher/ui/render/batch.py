"""`batch` and `sweep` in text and as documents: plan, progress, lists, results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from math import isnan
from typing import Any, Self

from vastrun.contract.texts import how_many
from vastrun.launcher.batch.fleet_plan import FleetPlan
from vastrun.launcher.batch.plan import BatchPlan
from vastrun.launcher.batch.results import PointResult, SameResults
from vastrun.launcher.batch.schedule import BatchRow, PointState
from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.core import Run, UserRequest
from vastrun.launcher.core import Verdict as RunVerdict
from vastrun.launcher.core.batch import Batch, BatchObjective, BatchPoint, BatchProgress, BudgetUse
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.core.runs import HIDDEN
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import duration, facts, rough, table, usd, usd_sum
from vastrun.launcher.ui.render.batch_results import (
    common_values,
    fitted,
    value_forms,
    values_text,
)
from vastrun.launcher.ui.render.plan import refusal_text


def plan_text(plan: BatchPlan) -> str:
    """Write the plan of a batch with its costs."""
    limits, count = plan.spec.limits, plan.count
    values = [point.shown for point in plan.points]
    shown = value_forms(values[:5], values)[1]
    more = count - len(shown)
    free = not plan.offer.usd_per_hour
    pairs = [
        ("batch", f"{plan.spec.name}: {how_many(count, 'point')}, {min(limits.parallel, count)} at once"),
        ("points", "\n".join([*shown, *([f"… and {more:,} more"] if more else [])])),
        ("all with", values_text(common_values(values))),
        ("provider", f"{plan.provider}: {plan.offer.description}{'' if free else ' for the first point'}"),
        ("price", "" if free else f"{usd(plan.offer.usd_per_hour)}/h"),
        ("expected", f"{usd(plan.expected_usd)} for all points" if plan.expected_usd else ""),
        (
            "at most",
            "" if free else f"{usd(plan.worst_case_usd)} for all, {usd(plan.share_usd)} for one point",
        ),
        ("machines", "" if plan.fleet is None else _fleet(plan.fleet)),
        ("budget", _budget(plan)),
        ("time", _time(plan)),
        ("refused", "\n".join(map(refusal_text, plan.refusals))),
        ("note", "" if plan.refusals else "\n".join(map(_narrow, plan.narrow))),
        ("compare", f"{plan.spec.objective.metric}, {plan.spec.objective.goal}"),
    ]
    return facts(pairs)


def _fleet(fleet: FleetPlan) -> str:
    """Write the plan of held machines: their number, their points, and the price of sharing them."""
    count, rounds = fleet.points_at_once, how_many(fleet.points_in_turn, "round")
    at_once = f"{how_many(count, 'point')} at once" if count > 1 else "one point at a time"
    lines = [f"{how_many(fleet.machines, 'machine')} held: {at_once}, {rounds}"]
    if fleet.offer.usd_per_hour:
        lines.append(f"expected {usd(fleet.expected_usd)}, at most {usd(fleet.at_most_usd)}")
    if count > 1:
        alone = fleet.single_usd_per_hour
        single = "no machine for one alone" if alone is None else f"{usd(alone)}/h alone"
        lines.append(f"{fleet.offer.description}: {usd(fleet.packed_usd_per_hour)}/h a point, {single}")
    return "\n".join(lines)


def _narrow(use: BudgetUse) -> str:
    left, limit = usd(use.left_usd), usd(use.budget.usd)
    return f"{use.budget.name} has {left} left of {limit}: it may end the batch before its last point"


def progress_line(progress: BatchProgress, budget_usd: float | None) -> str:
    """Write one line with the numbers of points and the spending."""
    counts = [
        f"{progress.ended}/{progress.points} ended",
        f"{progress.failed} failed" if progress.failed else "",
        f"{progress.pruned} pruned" if progress.pruned else "",
        f"{progress.running} running",
        f"{how_many(progress.machines, 'machine')} held" if progress.machines else "",
    ]
    text = ", ".join(part for part in counts if part)
    if not progress.spent_usd and not progress.reserved_usd:
        return text
    of = f" of {usd(budget_usd)}" if budget_usd else ""
    idle = f" ({usd(progress.idle_usd)} idle)" if progress.idle_usd >= 0.0005 else ""
    money = f"; {usd(progress.spent_usd)} spent{idle}{of}, {usd(progress.reserved_usd)} reserved"
    forecast = "" if progress.forecast_usd is None else f", {usd(progress.forecast_usd)} forecast"
    ends_in_s = progress.budget_ends_in_s(budget_usd)
    warning = "" if ends_in_s is None else f"; at this rate the budget ends in {rough(ends_in_s)}"
    return text + money + forecast + warning


def open_runs_lines(
    rows: Sequence[RunRow], values: Mapping[str, Mapping[str, Any]], now: float, width: int | None
) -> Sequence[str]:
    """Return a header and a line for each open run, the oldest first. `values`: by point."""
    ordered = sorted(rows, key=lambda row: row.run.created_at)
    texts = value_forms([values.get(row.run.point, {}) for row in ordered], list(values.values()))[1]
    cells = [
        (
            text,
            run.phase.value,
            _steps(run),
            "-" if not run.steps else f"{min(1.0, run.step / run.steps):.0%}",
            duration(now - run.created_at),
            usd(row.usd),
            run.host,
        )
        for row, text in zip(ordered, texts, strict=True)
        for run in (row.run,)
    ]
    header = ("POINT", "PHASE", "STEP", "", "AGE", "COST", "HOST")
    return table(header, cells, right=(2, 3, 4, 5), cut=(0,), width=width).splitlines() if cells else []


def ended_text(state: PointState, metric: str, value: float | None) -> str:
    """Write one line about an ended point."""
    run = state.last
    detail = "" if run is None or state.verdict == "SUCCEEDED" else f" ({run.detail})"
    measured = "" if value is None else f" {metric} {'diverged' if isnan(value) else f'{value:.4g}'}"
    return f"{state.point.number} {state.verdict}{measured}: {values_text(state.point.shown)}{detail}"


def batches_table(rows: Sequence[BatchRow], *, width: int | None) -> str:
    """Write a table of batches."""
    if not rows:
        return "no batches yet"
    columns = {
        "BATCH": [row.batch.name for row in rows],
        "PROVIDER": [row.batch.provider for row in rows],
        "ENDED": [f"{row.progress.ended}/{row.progress.points}" for row in rows],
        "FAILED": [str(row.progress.failed) for row in rows],
        "RUNNING": [str(row.progress.running) for row in rows],
        "COST": [usd_sum([row.progress.spent_usd]) for row in rows],
        "BUDGET": [usd(row.batch.spec.limits.usd) if row.batch.spec.limits.usd else "-" for row in rows],
        "STATE": [_state(row) for row in rows],
    }
    cells = zip(*columns.values(), strict=True)
    return table(tuple(columns), cells, right=(2, 3, 4, 5, 6), cut=(7, 0), width=width)


def batch_text(row: BatchRow, now: float, width: int | None) -> str:
    """Write the state of one batch, with a line for each open or failed point."""
    batch, limits = row.batch, row.batch.spec.limits
    about = facts(
        [
            ("batch", f"{batch.name} on {batch.provider}"),
            ("state", _state(row)),
            ("points", progress_line(row.progress, limits.usd)),
            ("compare", f"{batch.spec.objective.metric}, {batch.spec.objective.goal}"),
            ("outputs", batch.folder),
        ]
    )
    shown = [state for state in row.states if state.is_open or state.has_failed]
    if not shown:
        return about
    columns = {
        "#": [str(state.point.number) for state in shown],
        "VALUES": [""] * len(shown),
        "STATE": [_point_state(state) for state in shown],
        "STEP": ["-" if state.last is None else _steps(state.last) for state in shown],
        "COST": [usd_sum(cost_usd(run, now) for run in state.rows) for state in shown],
        "RUN": ["-" if state.last is None else state.last.id for state in shown],
    }

    def render(texts: Sequence[str], width: int | None) -> str:
        cells = zip(*{**columns, "VALUES": texts}.values(), strict=True)
        return table(tuple(columns), cells, right=(0, 3, 4), cut=(1, 5), width=width)

    forms = value_forms([state.point.shown for state in shown], [state.point.shown for state in row.states])
    return f"{about}\n\n{fitted(forms, width, render)}"


def _state(row: BatchRow) -> str:
    batch = row.batch
    if row.is_driven:
        return "stopping" if batch.request in (UserRequest.STOP, UserRequest.DESTROY) else "running"
    if not (row.progress.waiting or row.progress.running or row.progress.machines):
        return "ended"
    why = batch.reason or ("stopped" if batch.request is UserRequest.STOP else "no launcher drives it")
    return f"{why}: {batch.resume_command}" if batch.resume_command else why


def _point_state(state: PointState) -> str:
    if state.is_open and state.last is not None:
        return state.last.phase.value
    return f"{state.verdict} ({state.last.cause})" if state.last is not None else "-"


def _steps(run: Run) -> str:
    return f"{run.step}/{run.steps}" if run.steps else str(run.step or "-")


def _budget(plan: BatchPlan) -> str:
    limit = plan.spec.limits.usd
    if limit is None:
        return ""
    if limit >= plan.worst_case_usd:
        return f"{usd(limit)}, enough for all points in the worst case"
    runs = how_many(int(limit / plan.share_usd + 1e-9), "run")
    return f"{usd(limit)}, enough for {runs} at once; unspent money of a run becomes free again"


def _time(plan: BatchPlan) -> str:
    at_once = how_many(min(plan.spec.limits.parallel, plan.count), "run")
    if not plan.wall_s:
        limit = f"at most {rough(plan.limit_s)} by limits.hours"
        return f"unknown until a run of this job has succeeded here; {limit}"
    if plan.earlier_runs:
        known = how_many(plan.earlier_runs, "earlier run")
        return f"about {rough(plan.wall_s)} with {at_once} at once, by {known} of this job"
    return f"at least {rough(plan.wall_s)}, with {at_once} at once, by the rental limits of {plan.provider}"


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
    diverged: bool
    """Its last value of the metric is not a finite number."""
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
    same: Sequence[SameResults]
    usd: float

    @classmethod
    def of(cls, rows: Sequence[PointResult], batch: Batch, same: Sequence[SameResults]) -> Results:
        """Make the document of the results."""
        return cls.fill(
            batch,
            batch=batch.name,
            objective=batch.spec.objective,
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
            same=same,
            usd=sum(row.usd for row in rows),
        )
