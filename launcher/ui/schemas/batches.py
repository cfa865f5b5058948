"""Shapes of batches: their plan, how far they are, their results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from launcher.core import Verdict as RunVerdict
from launcher.core.early_stop import Goal
from launcher.decisions.analysis import Influence
from launcher.ui.schemas.shape import JsonShape


class PlannedPoint(JsonShape):
    """A point of a batch."""

    id: str
    values: Mapping[str, Any]


class PlannedFleet(JsonShape):
    """The machines that a batch would hold."""

    machines: int
    points_at_once: int
    points_in_turn: int
    expected_usd: float
    at_most_usd: float
    packed_usd_per_hour: float | None
    single_usd_per_hour: float | None


class PlannedBatch(JsonShape):
    """What a batch would do and cost."""

    batch: str
    provider: str
    points: list[PlannedPoint]
    count: int
    parallel: int
    expected_usd: float
    at_most_usd: float
    at_most_usd_per_run: float
    budget_usd: float | None
    least_budget_usd: float
    seconds_at_least: float | None
    refused: list[str]
    """Budgets that have no room for it."""
    fleet: PlannedFleet | None


class ShownBatch(JsonShape):
    """A batch, and how far it is."""

    name: str
    provider: str
    created_at: float
    points: int
    waiting: int
    running: int
    succeeded: int
    pruned: int
    failed: int
    usd: float
    reserved_usd: float
    forecast_usd: float | None
    machines: int
    idle_usd: float
    budget_usd: float | None
    is_driven: bool
    reason: str
    """Why it ended before its last point; empty: it did not."""
    outputs: str


class ShownPoint(JsonShape):
    """A point of a batch, and its runs."""

    number: int
    id: str
    values: Mapping[str, Any]
    wanted: bool
    """The newest file of the batch has it."""
    waiting: bool
    verdict: RunVerdict | None
    runs: list[str]


class BatchList(JsonShape):
    """Every batch, the newest first."""

    batches: list[ShownBatch]


class BatchInDetail(ShownBatch):
    """One batch from near."""

    points_list: list[ShownPoint]


class ShownObjective(JsonShape):
    """What points are compared by."""

    metric: str
    goal: Goal


class PointOutcome(JsonShape):
    """What became of a point."""

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


class Results(JsonShape):
    """The results of a batch, best first."""

    batch: str
    provider: str
    objective: ShownObjective
    reason: str
    """Why it ended before its last point; empty: it did not."""
    points: list[PointOutcome]
    pareto_front: list[str]
    """The points that no other beats in metric and dollars both, the cheapest first."""
    influences: list[Influence]
    usd: float


class FailureCause(JsonShape):
    """A cause of failed points of a batch."""

    cause: str
    """A cause; of a run that has none its verdict."""
    points: int
    run: str
    """The newest run that ended so."""
    detail: str
    """Detail of that run."""
    runs: list[str]
    """The last runs of all these points."""


class ExplainedBatch(JsonShape):
    """Ends of the points of a batch, and the causes."""

    batch: str
    reason: str
    """Why it ended before its last point; empty: it did not."""
    points: Mapping[str, int]
    """Number of points by verdict, `running` or `waiting`."""
    causes: list[FailureCause]
    """The most frequent first."""
    next: str | None
    """Advice; null if no point failed."""
