"""Cost groups: cost of runs by run, batch, job, host, GPU, tag, and by day or month of a calendar. Pure.

Every dollar of a run has one use: training, idle or failed. Together these are what its GPUs, its storage and
its traffic cost together.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import ClassVar

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Cost, Run
from vastrun.launcher.cost.spending import Spending

_AGO_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_AGO = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)([mhdw])", re.ASCII)
_DAY = re.compile(r"(\d{4})-(\d\d)(?:-(\d\d))?", re.ASCII)
_EXPECTED = "expected a day like 2026-11-01, a month like 2026-11, today, or 7d or 24h ago"
NONE = "-"
"""Key of runs that have none: no batch, no tag, no machine."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """A day or a month."""

    name: str
    """`2026-11-01`, `2026-11`."""
    since: float
    until: float
    """Epoch seconds; the end is no part of it."""


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """Calendar in the user's time zone."""

    zone: tzinfo | None = None
    """Time zone; None: that of this computer."""

    def day(self, at: float) -> Span:
        """Return the day that the moment is in."""
        return self._day(datetime.fromtimestamp(at, self.zone).date())

    def month(self, at: float) -> Span:
        """Return the month that the moment is in."""
        return self._month(datetime.fromtimestamp(at, self.zone).date())

    def zone_name(self, at: float) -> str:
        """Return the name and offset of the time zone at that moment: `CET, UTC+01:00`."""
        moment = datetime.fromtimestamp(at, self.zone).astimezone(self.zone)
        return f"{moment.tzname()}, UTC{moment.isoformat()[-6:]}"

    def moment(self, text: str, now: float, *, is_end: bool = False) -> float:
        """Return the moment that long ago, or the begin or end of that day or month. Raises ValueError."""
        if found := _AGO.fullmatch(text):
            return now - float(found[1]) * _AGO_S[found[2]]
        span = self._named(text, now)
        return span.until if is_end else span.since

    def _named(self, text: str, now: float) -> Span:
        if text == "today":
            return self.day(now)
        found = _DAY.fullmatch(text)
        try:
            if found is not None:
                first = date(int(found[1]), int(found[2]), int(found[3] or 1))
                return self._day(first) if found[3] else self._month(first)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{_EXPECTED}, got {text!r}: there is no such day") from error
        raise ValueError(f"{_EXPECTED}, got {text!r}")

    def _day(self, day: date) -> Span:
        return Span(
            name=day.isoformat(), since=self._midnight(day), until=self._midnight(day + timedelta(days=1))
        )

    def _month(self, day: date) -> Span:
        first = day.replace(day=1)
        following = (first + timedelta(days=31)).replace(day=1)
        return Span(name=f"{first:%Y-%m}", since=self._midnight(first), until=self._midnight(following))

    def _midnight(self, day: date) -> float:
        return datetime.combine(day, time(), self.zone).timestamp()


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


def group_spendings(spendings: Iterable[Spending], by: GroupBy, calendar: Calendar) -> list[Group]:
    """Return the groups: days and months in order, all others the most expensive first."""
    found: dict[str, list[Spending]] = defaultdict(list)
    for spending in spendings:
        for key, part in GROUPERS[by](spending, calendar):
            found[key].append(part)
    groups = [group_of(key, parts) for key, parts in found.items()]
    if by in OVER_TIME:
        return sorted(groups, key=lambda group: group.key)
    return sorted(groups, key=lambda group: -group.usd)


def group_of(key: str, parts: Sequence[Spending]) -> Group:
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
    )


Grouper = Callable[[Spending, Calendar], Iterator[tuple[str, Spending]]]


def _by(key_of: Callable[[Run], str]) -> Grouper:
    """Return a grouper that yields the whole run under one key."""
    return lambda spending, _: iter([(key_of(spending.run) or NONE, spending)])


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
    GroupBy.GPU: _by(lambda run: (run.offer.gpu_name or "CPU") if run.offer else ""),
    GroupBy.DAY: _by_time(Calendar.day),
    GroupBy.MONTH: _by_time(Calendar.month),
    GroupBy.TAG: lambda spending, _: (
        (tag, spending) for tag in read_job(spending.run.spec_json).tags or (NONE,)
    ),
}
