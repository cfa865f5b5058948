"""Searching: the next points of a batch whose search learns from those that have ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from launcher.batch import tpe
from launcher.batch.results import metric_of
from launcher.config import dump_job, points_at, read_job
from launcher.core import Verdict
from launcher.core.batch import BatchPoint, BatchSpec, Search
from launcher.decisions.schedule import PointState


def first_points(
    spec: BatchSpec, points: Sequence[BatchPoint], search: Search | None
) -> Sequence[BatchPoint]:
    """Return the points of a file, or those with which its search begins. Raises UsageError."""
    return points if search is None else asked(search, spec, [], spec.limits.parallel)


def asked(search: Search, spec: BatchSpec, states: Iterable[PointState], count: int) -> list[BatchPoint]:
    """Return up to `count` further points; fewer where the space has no more, or enough were asked for.

    `states`: the points that there are, by number. Raises UsageError when Optuna is not installed.
    """
    states = list(states)
    count = min(count, search.samples - len(states))
    if count <= 0:
        return []
    ended = [state for state in states if state.verdict is not None]
    pending = [state.point.values for state in states if state.verdict is None]
    values = tpe.ask(
        search.space,
        [_tried(state, spec) for state in ended],
        pending,
        goal=spec.objective.goal,
        seed=search.seed,
        count=count,
    )
    return limited(points_at(search, values), search.share_usd)


def limited(points: Sequence[BatchPoint], share_usd: float | None) -> list[BatchPoint]:
    """Return the points with that share as their jobs' limit on money; None: as they are."""
    if share_usd is None:
        return list(points)
    jobs = [read_job(point.spec_json) for point in points]
    shares = [replace(job, limits=replace(job.limits, usd=share_usd)) for job in jobs]
    return [replace(point, spec_json=dump_job(job)) for point, job in zip(points, shares, strict=True)]


def _tried(state: PointState, spec: BatchSpec) -> tpe.CompletedTrial:
    run, values = state.last, state.point.values
    metric = None if run is None else metric_of(run, spec.objective.metric)
    if state.verdict is Verdict.SUCCEEDED and metric is not None:
        return tpe.CompletedTrial(values=values, state="finished", metric=metric)
    if state.verdict is Verdict.PRUNED and run is not None:
        return tpe.CompletedTrial(values=values, state="pruned", metric=metric, step=run.step)
    return tpe.CompletedTrial(values=values, state="failed")
