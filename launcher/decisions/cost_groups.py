"""Grouping: what runs cost together, by run, batch, job, host, GPU, day, month or tag. Pure.

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
"""The key of runs that have none: without a batch, a tag, a machine."""
CPU = "CPU"


class GroupBy(StrEnum):
    """What costs are added up by."""

    RUN = "run"
    BATCH = "batch"
    JOB = "job"
    HOST = "host"
    GPU = "gpu"
    DAY = "day"
    MONTH = "month"
    TAG = "tag"


OVER_TIME = (GroupBy.DAY, GroupBy.MONTH)
"""These take a run apart where it goes on beyond the end of one."""


@dataclass(frozen=True, kw_only=True)
class ScoreSummary:
    """What finished runs scored by one metric. Whether less is better only its name says."""

    runs: int
    lowest: float
    median: float
    highest: float


@dataclass(frozen=True, kw_only=True)
class Group(Cost):
    """What runs that have something in common cost together."""

    printed_properties: ClassVar = ("usd", "training_usd", "usd_per_run", "usd_per_1000_steps")

    key: str
    runs: int
    finished: int
    """So many of them succeeded."""
    hours: float
    gpu_hours: float
    idle_usd: float
    """Of runs that did not fail, while they did not train."""
    failed_usd: float
    """All that runs cost which ended with any verdict but success."""
    steps: float
    scored: ScoreSummary | None = None
    """None: nobody asked for a metric, or no run that finished has it."""

    @property
    def training_usd(self) -> float:
        """What is left: runs that did not fail, while they trained."""
        return max(0.0, self.usd - self.idle_usd - self.failed_usd)

    @property
    def usd_per_run(self) -> float | None:
        """Everything, for each run that finished; None: none did."""
        return self.usd / self.finished if self.finished else None

    @property
    def usd_per_1000_steps(self) -> float | None:
        """Everything, for each thousand steps; None: none was trained, as far as it is known."""
        return self.usd / self.steps * 1000 if self.steps else None


def group_spendings(
    spendings: Iterable[Spending], by: GroupBy, calendar: Calendar, scores: Mapping[str, float] | None = None
) -> list[Group]:
    """Return the groups: days and months in their order, all others the most expensive first.

    `scores`: of a metric, by the ids of the runs that have it.
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
    """Return what they cost together, each run counted once."""
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
    """Return the model of its GPUs; empty: nothing was chosen yet."""
    if run.offer is None:
        return ""
    return run.offer.gpu_name or CPU


Grouper = Callable[[Spending, Calendar], Iterator[tuple[str, Spending]]]


def _by(key_of: Callable[[Run], str]) -> Grouper:
    """The whole run, under its one key."""

    def grouper(spending: Spending, _: Calendar) -> Iterator[tuple[str, Spending]]:
        yield key_of(spending.run) or NONE, spending

    return grouper


def _by_tags(spending: Spending, _: Calendar) -> Iterator[tuple[str, Spending]]:
    for tag in tags_of(spending.run) or (NONE,):
        yield tag, spending


def _by_time(span_of: Callable[[Calendar, float], Span]) -> Grouper:
    """The run taken apart, under each day or month in which it cost."""

    def grouper(spending: Spending, calendar: Calendar) -> Iterator[tuple[str, Spending]]:
        span = span_of(calendar, spending.since)
        while (part := spending.within(span.since, span.until)) is not None:
            yield span.name, part
            span = span_of(calendar, span.until)

    return grouper


def _run_id(run: Run) -> str:
    """What its further nodes cost is what the run cost."""
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
