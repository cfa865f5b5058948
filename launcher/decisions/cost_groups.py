"""Cost groups: total cost of runs by run, batch, job, host, GPU, day, month or tag. Pure.

Every dollar of a run has one use: training, idle or failed. Together these are what its GPUs, its storage and
its traffic cost together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import ClassVar

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cost, Run
from vastrun.launcher.decisions.calendar import Calendar, Span
from vastrun.launcher.decisions.spending import Spending

NONE = "-"
"""Key of runs that have none: no batch, no tag, no machine."""
CPU = "CPU"


class GroupBy(StrEnum):
    """Property by which costs are grouped."""

    RUN = "run"
    BATCH = "batch"
    JOB = "job"
    HOST = "host"
    GPU = "gpu"
    DAY = "day"
    MONTH = "month"
    TAG = "tag"


OVER_TIME = (GroupBy.DAY, GroupBy.MONTH)
"""Groups that split a run which continues beyond the end of a period."""


@dataclass(frozen=True, kw_only=True)
class ScoreSummary:
    """Values of one metric over finished runs. Only its name says whether less is better."""

    runs: int
    lowest: float
    median: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class Group(Cost):
    """Total cost of the runs of one group."""

    printed_properties: ClassVar = ("usd", "training_usd", "usd_per_run", "usd_per_1000_steps")

    key: str
    runs: int
    finished: int
    """Number of runs that succeeded."""
    hours: float
    gpu_hours: float
    idle_usd: float
    """USD of runs that did not fail, while they did not train."""
    failed_usd: float
    """USD of runs that ended with any verdict but success."""
    steps: float
    scored: ScoreSummary | None = None
    """Summary of a metric; None: none was requested, or no finished run has it."""

    @property
    def training_usd(self) -> float:
        """USD of runs that did not fail, while they trained."""
        return max(0.0, self.usd - self.idle_usd - self.failed_usd)

    @property
    def usd_per_run(self) -> float | None:
        """USD of the group per finished run; None: none finished."""
        return self.usd / self.finished if self.finished else None

    @property
    def usd_per_1000_steps(self) -> float | None:
        """USD of the group per thousand steps; None: no steps are known."""
        return self.usd / self.steps * 1000 if self.steps else None


def group_spendings(
    spendings: Iterable[Spending], by: GroupBy, calendar: Calendar, scores: Mapping[str, float] | None = None
) -> list[Group]:
    """Return the groups: days and months in order, all others the most expensive first.

    `scores`: values of a metric by run id.
    """
    found: dict[str, list[Spending]] = defaultdict(list)
    for spending in spendings:
        for key, part in GROUPERS[by](spending, calendar):
            found[key].append(part)
    groups = [group_of(key, parts, scores) for key, parts in found.items()]
    if by in OVER_TIME:
        return sorted(groups, key=lambda group: group.key)
    return sorted(groups, key=lambda group: -group.usd)


def group_of(key: str, parts: Sequence[Spending], scores: Mapping[str, float] | None = None) -> Group:
    """Return the group of these parts, each run counted once."""
    ids = {_run_id(part.run) for part in parts}
    finished = {part.run.id for part in parts if part.finished and not part.run.leader}
    return Group(
        key=key,
        runs=len(ids),
        finished=len(finished),
        hours=sum(part.hours for part in parts),
        gpu_hours=sum(part.gpu_hours for part in parts),
        gpu_usd=sum(part.cost.gpu_usd for part in parts),
        storage_usd=sum(part.cost.storage_usd for part in parts),
        traffic_usd=sum(part.cost.traffic_usd for part in parts),
        idle_usd=sum(part.idle_usd for part in parts if not part.failed),
        failed_usd=sum(part.cost.usd for part in parts if part.failed),
        steps=sum(part.steps for part in parts),
        scored=_scored([scores[run_id] for run_id in finished if run_id in scores] if scores else []),
    )


def tags_of(run: Run) -> Sequence[str]:
    """Return the tags of the run's job."""
    return read_job(run.spec_json).tags


def gpu_of(run: Run) -> str:
    """Return the model of the run's GPUs; empty: no offer was chosen yet."""
    if run.offer is None:
        return ""
    return run.offer.gpu_name or CPU


Grouper = Callable[[Spending, Calendar], Iterator[tuple[str, Spending]]]


def _by(key_of: Callable[[Run], str]) -> Grouper:
    """Return a grouper that yields the whole run under one key."""

    def grouper(spending: Spending, _: Calendar) -> Iterator[tuple[str, Spending]]:
        yield key_of(spending.run) or NONE, spending

    return grouper


def _by_tags(spending: Spending, _: Calendar) -> Iterator[tuple[str, Spending]]:
    for tag in tags_of(spending.run) or (NONE,):
        yield tag, spending


def _by_time(span_of: Callable[[Calendar, float], Span]) -> Grouper:
    """Return a grouper that splits the run by day or month."""

    def grouper(spending: Spending, calendar: Calendar) -> Iterator[tuple[str, Spending]]:
        span = span_of(calendar, spending.since)
        while (part := spending.within(span.since, span.until)) is not None:
            yield span.name, part
            span = span_of(calendar, span.until)

    return grouper


def _run_id(run: Run) -> str:
    """Return the id of the run, also for rows of further nodes: their cost is the run's."""
    return run.leader or run.id


GROUPERS: Mapping[GroupBy, Grouper] = {
    GroupBy.RUN: _by(_run_id),
    GroupBy.BATCH: _by(lambda run: run.batch),
    GroupBy.JOB: _by(lambda run: run.job),
    GroupBy.HOST: _by(lambda run: run.host),
    GroupBy.GPU: _by(gpu_of),
    GroupBy.DAY: _by_time(Calendar.day),
    GroupBy.MONTH: _by_time(Calendar.month),
    GroupBy.TAG: _by_tags,
}


def _scored(scores: Sequence[float]) -> ScoreSummary | None:
    if not scores:
        return None
    return ScoreSummary(runs=len(scores), lowest=min(scores), median=median(scores), highest=max(scores))
