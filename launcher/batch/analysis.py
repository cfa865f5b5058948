"""Analysis: which finished points of a batch are worth their dollars, and which parameter mattered. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import StatisticsError, correlation, fmean
from typing import Any, Literal

from vastrun.launcher.core.batch import Goal

MIN_POINTS = 5
"""Min. number of points: of four, one order in three has a rank correlation of 0.8 or more by chance."""
NOT_A_CAUSE = "what went together in these points; a correlation is not a cause"
"""Caveat shown with all influences."""


@dataclass(frozen=True, kw_only=True)
class FinishedPoint:
    """A point of a batch that ended with a value of the metric."""

    id: str
    values: Mapping[str, Any]
    """Values of its parameters by key, without keys that it does not set."""
    metric: float
    usd: float
    """USD of all its attempts."""


@dataclass(frozen=True, kw_only=True)
class Influence:
    """Strength of the relation between a parameter and the metric."""

    key: str
    measure: Literal["rank correlation", "share of variance"]
    """Spearman's for numbers; for anything else, how much of the ranks' variance lies between its values."""
    strength: float
    """-1 to 1 of a correlation, above 0 where the metric rises with the parameter; else 0 to 1."""
    points: int
    """Number of points that have the parameter and the metric."""

    def __str__(self) -> str:
        sign = "+" if self.measure == "rank correlation" else ""
        return f"{self.key}: {self.measure} {self.strength:{sign}.2f} over {self.points} points"


def pareto_front(points: Iterable[FinishedPoint], goal: Goal) -> list[FinishedPoint]:
    """Return the points that no other beats in both metric and cost, the cheapest first.

    Includes all points that are equal in both, and none whose metric is not a number.
    """
    sign = 1 if goal == "min" else -1
    known = [point for point in points if math.isfinite(point.metric)]
    front: list[FinishedPoint] = []
    for point in sorted(known, key=lambda point: (point.usd, sign * point.metric, point.id)):
        best = front[-1] if front else None
        if (
            best is None
            or sign * point.metric < sign * best.metric
            or (point.usd, point.metric) == (best.usd, best.metric)
        ):
            front.append(point)
    return front


def influences(points: Iterable[FinishedPoint]) -> list[Influence]:
    """Return an influence for each parameter that varied, the strongest first; none of under 5 points.

    A parameter that has another value in each point, and is no number, says nothing, and is left out.
    """
    known = [point for point in points if math.isfinite(point.metric)]
    keys = dict.fromkeys(key for point in known for key in point.values)
    found = (_influence(key, [point for point in known if key in point.values]) for key in keys)
    return sorted(filter(None, found), key=lambda influence: (-abs(influence.strength), influence.key))


def _influence(key: str, points: Sequence[FinishedPoint]) -> Influence | None:
    if len(points) < MIN_POINTS:
        return None
    values = [point.values[key] for point in points]
    metrics = [point.metric for point in points]
    if all(map(_is_number, values)):
        strength = spearman(values, metrics)
        if strength is None:
            return None
        return Influence(key=key, measure="rank correlation", strength=strength, points=len(points))
    share = variance_share([repr(value) for value in values], metrics)
    if share is None:
        return None
    return Influence(key=key, measure="share of variance", strength=share, points=len(points))


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation: Pearson's of ranks, ties count half. None: one does not vary."""
    try:
        return max(-1.0, min(1.0, correlation(ranks(one), ranks(other))))
    except StatisticsError:
        return None


def variance_share(groups: Sequence[str], values: Sequence[float]) -> float | None:
    """Return eta squared of the Kruskal-Wallis statistic H: (H - k + 1) / (n - k), at least 0.

    Of ranks, as Spearman's: one point that diverged to 1e9 does not decide. Without the correction by k, the
    number of groups, many groups of few points would look strong by chance. None: nothing can be said.
    """
    by_group: dict[str, list[float]] = defaultdict(list)
    for group, rank in zip(groups, ranks(values), strict=True):
        by_group[group].append(rank)
    n, k = len(values), len(by_group)
    mean = (n + 1) / 2
    total = sum((rank - mean) ** 2 for rank in ranks(values))
    if not 1 < k < n or not total:
        return None
    between = sum(len(found) * (fmean(found) - mean) ** 2 for found in by_group.values())
    h = (n - 1) * between / total
    return min(1.0, max(0.0, (h - k + 1) / (n - k)))


def ranks(values: Sequence[float]) -> list[float]:
    """Return the rank of each value from 1; equal values share their mean rank."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for place in order[start : end + 1]:
            found[place] = (start + end) / 2 + 1
        start = end + 1
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf
