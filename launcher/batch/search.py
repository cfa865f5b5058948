"""Choose the next points of a batch whose search learns from those that have ended."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, Literal

from vastrun.launcher.batch.results import metric_of
from vastrun.launcher.batch.schedule import PointState
from vastrun.launcher.config import dump_job, read_job
from vastrun.launcher.core import Verdict
from vastrun.launcher.core.batch import BatchPoint, BatchSpec, Dimension, Goal, Search
from vastrun.launcher.core.errors import UsageError
from vastrun.launcher.package_files import install_command

# Optuna's own types. Not imported, not even for types: whoever checks the types of a script that says
# `import vastrun` would check all of Optuna, and of what that imports.
Study = Any
FrozenTrial = Any
TrialState = Any
Distribution = Any

_DIGITS = 6
"""Significant digits of a value: it appears in tables and file names."""
_MAX_DUPLICATES = 50
"""Maximum proposals of known points before the space counts as exhausted."""
_MAX_METRIC = 1e30
"""Largest metric that is passed on: larger ones have diverged, and Optuna computes with the values."""


def first_points(
    spec: BatchSpec, points: Sequence[BatchPoint], search: Search | None
) -> Sequence[BatchPoint]:
    """Return the points of a file, or those with which its search begins. Raises UsageError."""
    return points if search is None else next_points(search, spec, [], spec.limits.parallel)


def next_points(
    search: Search, spec: BatchSpec, states: Iterable[PointState], count: int
) -> list[BatchPoint]:
    """Return up to `count` further points; fewer when the space or the sample limit is exhausted.

    `states`: the points that there are, by number. Raises UsageError when Optuna is not installed.
    """
    from vastrun.launcher.config.batch_file import points_at  # slow to import: pydantic, yaml

    # Points of other code say nothing of this one's.
    states = [one for one in states if read_job(one.point.spec_json).code_digest == search.code_digest]
    count = min(count, search.samples - len(states))
    if count <= 0:
        return []
    ended = [state for state in states if state.verdict is not None]
    pending = [state.point.values for state in states if state.verdict is None]
    values = propose(
        search.space,
        [_tried(state, spec) for state in ended],
        pending,
        goal=spec.objective.goal,
        seed=search.seed,
        count=count,
    )
    points, share_usd = points_at(search, values), search.share_usd
    return points if share_usd is None else [with_limit(point, share_usd) for point in points]


def with_limit(point: BatchPoint, share_usd: float) -> BatchPoint:
    """Return the point with that share as its job's limit on money."""
    job = read_job(point.spec_json)
    return replace(point, spec_json=dump_job(replace(job, limits=replace(job.limits, usd=share_usd))))


def _tried(state: PointState, spec: BatchSpec) -> CompletedTrial:
    run, values = state.last, state.point.values
    metric = None if run is None else metric_of(run, spec.objective.metric)
    if state.verdict is Verdict.SUCCEEDED and metric is not None:
        return CompletedTrial(values=values, state="finished", metric=metric)
    if state.verdict is Verdict.PRUNED and run is not None:
        return CompletedTrial(values=values, state="pruned", metric=metric, step=run.step)
    return CompletedTrial(values=values, state="failed")


@dataclass(frozen=True, kw_only=True)
class CompletedTrial:
    """A point that has ended."""

    values: Mapping[str, Any]
    state: Literal["finished", "pruned", "failed"]
    metric: float | None = None
    """Objective of a finished trial; value at which a pruned one was stopped."""
    step: int = 0
    """Last step of a pruned trial: of two, the one that got further is better."""


def propose(
    space: Sequence[Dimension],
    history: Iterable[CompletedTrial],
    pending: Iterable[Mapping[str, Any]] = (),
    *,
    goal: Goal = "min",
    seed: int = 0,
    count: int = 1,
) -> list[dict[str, Any]]:
    """Return values for up to `count` new points; fewer when the space is exhausted.

    The same arguments in the same order give the same values. `history`: in the order in which the points
    began. `pending`: points that go on, near which nothing is tried meanwhile. A point outside of `space`, of
    a file that was edited, does not count. Raises UsageError when Optuna is not installed.
    """
    axes = [_Axis(dimension) for dimension in space]
    study = _study(axes, history, pending, goal, seed)
    known = {_text(_values(axes, trial.params)) for trial in study.get_trials(deepcopy=False)}
    found: list[dict[str, Any]] = []
    for _ in range(count + _MAX_DUPLICATES):
        values = _values(axes, study.ask({axis.key: axis.distribution for axis in axes}).params)
        if _text(values) not in known:
            known.add(_text(values))
            found.append(values)
        if len(found) == count:
            break
    return found


def _study(
    axes: Sequence[_Axis],
    history: Iterable[CompletedTrial],
    pending: Iterable[Mapping[str, Any]],
    goal: Goal,
    seed: int,
) -> Study:
    """The study as it would be if one process had lived through it all."""
    library = _optuna()
    states = library.trial.TrialState
    trials = [_trial(axes, tried) for tried in history]
    trials += [_frozen(axes, values, states.RUNNING) for values in pending]
    seen = [trial for trial in trials if trial is not None]
    # The sampler draws from its beginning at each ask: without their number all its draws would be the same.
    mixed = (seed * 1_000_003 + len(seen)) % 2**32
    sampler = library.samplers.TPESampler(seed=mixed, constant_liar=True)
    study = library.create_study(direction="minimize" if goal == "min" else "maximize", sampler=sampler)
    study.add_trials(seen)
    return study


def _trial(axes: Sequence[_Axis], tried: CompletedTrial) -> FrozenTrial | None:
    states = _optuna().trial.TrialState
    value = tried.metric if tried.metric is not None and abs(tried.metric) <= _MAX_METRIC else None
    if tried.state == "finished" and value is not None:
        return _frozen(axes, tried.values, states.COMPLETE, value=float(value))
    if tried.state == "pruned":
        reports = {} if value is None else {max(0, tried.step): float(value)}
        return _frozen(axes, tried.values, states.PRUNED, intermediate_values=reports)
    return _frozen(axes, tried.values, states.FAIL)  # also one that diverged: it has no value


def _frozen(
    axes: Sequence[_Axis], values: Mapping[str, Any], state: TrialState, **result: Any
) -> FrozenTrial | None:
    """The trial of a point; None when its values are not of this space."""
    params = {axis.key: axis.param(values.get(axis.key)) for axis in axes}
    if any(param is None for param in params.values()):
        return None
    distributions = {axis.key: axis.distribution for axis in axes}
    return _optuna().trial.create_trial(state=state, params=params, distributions=distributions, **result)


class _Axis:
    """A dimension as Optuna has it. Of choices it knows the numbers only: a choice may be a list."""

    def __init__(self, dimension: Dimension) -> None:
        self.key = dimension.key
        self._kind, self._among = dimension.kind, dimension.among
        self._texts = [_text(choice) for choice in dimension.among]
        distributions = _optuna().distributions
        if self._kind == "choice":
            self.distribution: Distribution = distributions.CategoricalDistribution(range(len(self._among)))
        elif self._kind == "int":
            self.distribution = distributions.IntDistribution(*self._among)
        else:
            self.distribution = distributions.FloatDistribution(*self._among, log=self._kind == "log")

    def value(self, param: Any) -> Any:
        """The value of a point."""
        if self._kind == "choice":
            return self._among[param]
        if self._kind == "int":
            return int(param)
        low, high = self._among
        return min(max(float(f"{param:.{_DIGITS}g}"), float(low)), float(high))

    def param(self, value: Any) -> float | int | None:
        """Return Optuna's parameter of that value; None when it is outside this space."""
        if self._kind == "choice":
            return self._texts.index(_text(value)) if _text(value) in self._texts else None
        types: Any = int if self._kind == "int" else int | float
        low, high = self._among
        if isinstance(value, bool) or not isinstance(value, types) or not low <= value <= high:
            return None
        return int(value) if self._kind == "int" else float(value)


def _values(axes: Sequence[_Axis], params: Mapping[str, Any]) -> dict[str, Any]:
    return {axis.key: axis.value(params[axis.key]) for axis in axes}


def _text(value: Any) -> str:
    """Tells values apart as YAML does: 1, 1.0, true and "1" are four."""
    return json.dumps(value, sort_keys=True, default=str)


@cache
def _optuna() -> Any:
    """Optuna, imported only where a batch needs it: it takes most of a second. Raises UsageError."""
    try:
        optuna: Any = import_module("optuna")
    except ImportError as error:
        raise UsageError(
            "search.method: tpe needs Optuna, which is not installed", hint=install_command("tpe")
        ) from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # it logs each trial, on stderr
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
