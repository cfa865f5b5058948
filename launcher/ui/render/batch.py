"""`batch` and `sweep` in text and as documents: the plan, the standing line, the table of results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from launcher.batch.pricing import BatchPlan
from launcher.batch.results import PointResult, finished_in
from launcher.core import Run, UserRequest
from launcher.core.batch import Batch, BatchSpec, BudgetUse
from launcher.core.bills import cost_usd
from launcher.decisions.analysis import NOT_A_CAUSE, influences, pareto_front
from launcher.decisions.schedule import PointState, Standing
from launcher.ui.render.amounts import duration, rough, usd, usd_sum
from launcher.ui.render.plan import refusal_text
from launcher.ui.render.table import facts, table

Document = Mapping[str, Any]

_SHOWN_POINTS = 5
_OPEN = "running"
_WAITING = "waiting"


def values_text(values: Mapping[str, Any]) -> str:
    """Return `lr=0.001 dim=64`: each value with the last part of its key, all of it where two are alike."""
    short = [key.rpartition(".")[2] for key in values]
    return " ".join(
        f"{name if short.count(name) == 1 else key}={_value(value)}"
        for (key, value), name in zip(values.items(), short, strict=True)
    )


def plan_text(plan: BatchPlan) -> str:
    """Return what the batch would do and may cost."""
    limits, count = plan.spec.limits, plan.count
    shown = [values_text(point.values) for point in plan.points[:_SHOWN_POINTS]]
    more = count - len(shown)
    free = not plan.offer.usd_per_hour
    pairs = [
        ("batch", f"{plan.spec.name}: {_count(count, 'point')}, {min(limits.parallel, count)} at once"),
        ("points", "\n".join([*shown, *([f"… and {more:,} more"] if more else [])])),
        ("provider", f"{plan.provider}: {plan.offer.description}{'' if free else ' for the first point'}"),
        ("price", "" if free else f"{usd(plan.offer.usd_per_hour)}/h"),
        ("expected", f"{usd(plan.expected_usd)} for all points" if plan.expected_usd else ""),
        (
            "at most",
            "" if free else f"{usd(plan.worst_case_usd)} for all, {usd(plan.share_usd)} for one point",
        ),
        ("budget", _budget(plan)),
        ("time", f"at least {rough(plan.wall_s)}, {_by_what(plan)}" if plan.wall_s else ""),
        ("refused", "\n".join(map(refusal_text, plan.refusals))),
        ("note", "" if plan.refusals else "\n".join(map(_narrow, plan.narrow))),
        ("compare", f"{plan.spec.objective.metric}, {plan.spec.objective.goal}"),
    ]
    return facts(pairs)


def plan_document(plan: BatchPlan) -> Document:
    """Return the plan for programs."""
    return {
        "batch": plan.spec.name,
        "provider": plan.provider,
        "points": [{"id": point.id, "values": dict(point.values)} for point in plan.points],
        "count": plan.count,
        "parallel": plan.spec.limits.parallel,
        "expected_usd": plan.expected_usd,
        "at_most_usd": plan.worst_case_usd,
        "at_most_usd_per_run": plan.share_usd,
        "budget_usd": plan.spec.limits.usd,
        "least_budget_usd": plan.share_usd,
        "seconds_at_least": plan.wall_s,
        "refused": [str(error) for error in plan.refusals],
    }


def _narrow(use: BudgetUse) -> str:
    left, limit = usd(use.left_usd), usd(use.budget.usd)
    return f"{use.budget.name} has {left} left of {limit}: it may end the batch before its last point"


def standing_text(standing: Standing, budget_usd: float | None) -> str:
    """Return one line: how many points have ended, and where the money stands."""
    counts = [
        f"{standing.ended}/{standing.points} ended",
        f"{standing.failed} failed" if standing.failed else "",
        f"{standing.pruned} pruned" if standing.pruned else "",
        f"{standing.running} running",
    ]
    text = ", ".join(part for part in counts if part)
    if not standing.spent_usd and not standing.reserved_usd:
        return text
    of = f" of {usd(budget_usd)}" if budget_usd else ""
    money = f"; {usd(standing.spent_usd)} spent{of}, {usd(standing.reserved_usd)} reserved"
    forecast = "" if standing.forecast_usd is None else f", {usd(standing.forecast_usd)} forecast"
    ends_in_s = standing.budget_ends_in_s(budget_usd)
    warning = "" if ends_in_s is None else f"; at this rate the budget ends in {rough(ends_in_s)}"
    return text + money + forecast + warning


def ended_text(state: PointState, metric: str, value: float | None) -> str:
    """Return one line about a point that ended."""
    run = state.last
    detail = "" if run is None or state.verdict == "SUCCEEDED" else f" ({run.detail})"
    told = "" if value is None else f" {metric} {value:.4g}"
    return f"{state.point.number} {state.verdict}{told}: {values_text(state.point.values)}{detail}"


def results_text(rows: Sequence[PointResult], spec: BatchSpec, width: int | None) -> str:
    """Return the table of results, the best first, and what to type next about that one."""
    if not rows:
        return "no points yet"
    columns = {
        "#": [str(row.point.number) for row in rows],
        "VALUES": [values_text(row.point.values) for row in rows],
        "VERDICT": [_verdict(row) for row in rows],
        _column(spec): ["-" if row.metric is None else f"{row.metric:.4g}" for row in rows],
        "STEPS": [str(row.step) if row.run else "-" for row in rows],
        "TIME": [duration(row.hours * 3600) if row.run else "-" for row in rows],
        "COST": [usd_sum([row.usd]) for row in rows],
        "RUN": ["-" if row.run is None else row.run.id for row in rows],
    }
    right = [n for n, name in enumerate(columns) if name not in ("VALUES", "VERDICT", "RUN")]
    text = table(tuple(columns), zip(*columns.values(), strict=True), right=right, cut=(1, 7), width=width)
    best = rows[0].run
    if best is None or rows[0].metric is None:
        return text
    told = facts(
        [
            *_said(rows, spec),
            ("best", f"{values_text(rows[0].point.values)}: {spec.objective.metric} {rows[0].metric:.4g}"),
            ("outputs", best.out_dir),
            ("why", f"vastrun why {best.id}"),
            ("continue", f"vastrun launch JOB.yaml --from {best.id}" if best.step else ""),
        ]
    )
    return f"{text}\n\n{told}"


def _said(rows: Sequence[PointResult], spec: BatchSpec) -> Iterator[tuple[str, str]]:
    """What the points together say: those worth their dollars, and what went with the metric."""
    finished = finished_in(rows)
    numbers = {row.point.id: row.point.number for row in rows}
    front = pareto_front(finished, spec.objective.goal)
    if len(front) > 1 and any(point.usd for point in front):
        told = ", ".join(f"#{numbers[one.id]} ({usd(one.usd)}, {one.metric:.4g})" for one in front)
        yield "front", f"{told}: no other point is both cheaper and better"
    found = influences(finished)
    if found:
        yield "with it", "\n".join([*map(str, found[:_SHOWN_POINTS]), f"({NOT_A_CAUSE})"])


def results_document(rows: Sequence[PointResult], batch: Batch) -> Document:
    """Return the results for programs, best first."""
    finished = finished_in(rows)
    return {
        "batch": batch.name,
        "provider": batch.provider,
        "objective": {"metric": batch.spec.objective.metric, "goal": batch.spec.objective.goal},
        "reason": batch.reason,
        "points": [_point(row) for row in rows],
        "pareto_front": [point.id for point in pareto_front(finished, batch.spec.objective.goal)],
        "influences": [asdict(one) for one in influences(finished)],
        "usd": sum(row.usd for row in rows),
    }


def results_csv(rows: Sequence[PointResult], spec: BatchSpec) -> list[list[str]]:
    """Return the results as lines of a CSV file, the keys of all points as columns."""
    keys = list(dict.fromkeys(key for row in rows for key in row.point.values))
    header = ["point", "id", *keys, "verdict", spec.objective.metric, "step", "hours", "usd", "run", "host"]
    lines = [
        [
            str(row.point.number),
            row.point.id,
            *(_value(row.point.values.get(key, "")) for key in keys),
            _verdict(row),
            "" if row.metric is None else repr(row.metric),
            str(row.step),
            f"{row.hours:.4f}",
            f"{row.usd:.4f}",
            "" if row.run is None else row.run.id,
            "" if row.run is None else row.run.host,
        ]
        for row in rows
    ]
    return [header, *lines]


@dataclass(frozen=True, kw_only=True)
class BatchRow:
    """A batch in a table."""

    batch: Batch
    states: Sequence[PointState]
    standing: Standing
    is_driven: bool


def batches_table(rows: Sequence[BatchRow], *, width: int | None) -> str:
    """Return a line for each batch: its points, its dollars, whether a launcher drives it."""
    if not rows:
        return "no batches yet"
    columns = {
        "BATCH": [row.batch.name for row in rows],
        "PROVIDER": [row.batch.provider for row in rows],
        "ENDED": [f"{row.standing.ended}/{row.standing.points}" for row in rows],
        "FAILED": [str(row.standing.failed) for row in rows],
        "RUNNING": [str(row.standing.running) for row in rows],
        "COST": [usd_sum([row.standing.spent_usd]) for row in rows],
        "BUDGET": [usd(row.batch.spec.limits.usd) if row.batch.spec.limits.usd else "-" for row in rows],
        "STATE": [_state(row) for row in rows],
    }
    cells = zip(*columns.values(), strict=True)
    return table(tuple(columns), cells, right=(2, 3, 4, 5, 6), cut=(7, 0), width=width)


def batches_document(rows: Sequence[BatchRow]) -> Document:
    """Return the batches for programs."""
    return {"batches": [_batch_fields(row) for row in rows]}


def batch_text(row: BatchRow, now: float, width: int | None) -> str:
    """Return one batch from near: how it stands, and a line for each point that runs or has failed."""
    batch, limits = row.batch, row.batch.spec.limits
    about = facts(
        [
            ("batch", f"{batch.name} on {batch.provider}"),
            ("state", _state(row)),
            ("points", standing_text(row.standing, limits.usd)),
            ("compare", f"{batch.spec.objective.metric}, {batch.spec.objective.goal}"),
            ("outputs", batch.folder),
        ]
    )
    shown = [state for state in row.states if state.is_open or state.has_failed]
    if not shown:
        return about
    columns = {
        "#": [str(state.point.number) for state in shown],
        "VALUES": [values_text(state.point.values) for state in shown],
        "STATE": [_point_state(state) for state in shown],
        "STEP": [_steps(state.last) for state in shown],
        "COST": [usd_sum(cost_usd(run, now) for run in state.runs) for state in shown],
        "RUN": ["-" if state.last is None else state.last.id for state in shown],
    }
    cells = zip(*columns.values(), strict=True)
    return f"{about}\n\n{table(tuple(columns), cells, right=(0, 3, 4), cut=(1, 5), width=width)}"


def batch_document(row: BatchRow) -> Document:
    """Return one batch for programs, with its points."""
    points = [
        {
            "number": state.point.number,
            "id": state.point.id,
            "values": dict(state.point.values),
            "wanted": state.point.wanted,
            "waiting": state.is_waiting,
            "verdict": state.verdict,
            "runs": [run.id for run in state.runs],
        }
        for state in row.states
    ]
    return {**_batch_fields(row), "points_list": points}


def _batch_fields(row: BatchRow) -> Document:
    return {
        "name": row.batch.name,
        "provider": row.batch.provider,
        "created_at": row.batch.created_at,
        "points": row.standing.points,
        "waiting": row.standing.waiting,
        "running": row.standing.running,
        "succeeded": row.standing.succeeded,
        "pruned": row.standing.pruned,
        "failed": row.standing.failed,
        "usd": row.standing.spent_usd,
        "reserved_usd": row.standing.reserved_usd,
        "forecast_usd": row.standing.forecast_usd,
        "budget_usd": row.batch.spec.limits.usd,
        "is_driven": row.is_driven,
        "reason": row.batch.reason,
        "outputs": row.batch.folder,
    }


def _state(row: BatchRow) -> str:
    batch = row.batch
    if row.is_driven:
        return "stopping" if batch.request in (UserRequest.STOP, UserRequest.DESTROY) else "running"
    if not row.standing.waiting and not row.standing.running:
        return "ended"
    why = batch.reason or ("stopped" if batch.request is UserRequest.STOP else "no launcher drives it")
    return f"{why}: vastrun batch resume {batch.name}"


def _point_state(state: PointState) -> str:
    if state.is_open and state.last is not None:
        return state.last.phase.value
    return f"{state.verdict} ({state.last.cause})" if state.last is not None else "-"


def _steps(run: Run | None) -> str:
    if run is None:
        return "-"
    return f"{run.step}/{run.steps}" if run.steps else str(run.step)


def _point(row: PointResult) -> Document:
    return {
        "id": row.point.id,
        "number": row.point.number,
        "values": dict(row.point.values),
        "verdict": row.verdict,
        "metric": row.metric,
        "step": row.step,
        "hours": row.hours,
        "usd": row.usd,
        "attempts": row.attempts,
        "run": None if row.run is None else row.run.id,
        "host": None if row.run is None else row.run.host,
        "outputs": None if row.run is None else row.run.out_dir,
    }


def _column(spec: BatchSpec) -> str:
    return spec.objective.metric.rpartition(".")[2].upper()


def _verdict(row: PointResult) -> str:
    if row.run is None:
        return _WAITING
    return str(row.verdict) if row.verdict else _OPEN


def _budget(plan: BatchPlan) -> str:
    limit = plan.spec.limits.usd
    if limit is None:
        return ""
    if limit >= plan.worst_case_usd:
        return f"{usd(limit)}, enough for all points in the worst case"
    runs = int(limit / plan.share_usd + 1e-9)
    return f"{usd(limit)}, enough for {_count(runs, 'run')} at once; what a run does not spend is free again"


def _by_what(plan: BatchPlan) -> str:
    at_once = min(plan.spec.limits.parallel, plan.count)
    return f"with {_count(at_once, 'run')} at once, and not more rents than {plan.provider} allows"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
