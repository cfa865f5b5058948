"""Schedule: next points of a batch, its progress, and when it ends early. Pure functions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from vastrun.launcher.core import Cause, Phase, Run, Verdict
from vastrun.launcher.core.batch import Batch, BatchLimits, BatchPoint, BatchProgress
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.cost.spending import counted_in_total
from vastrun.launcher.decisions.holders import holder_of

_NO_FAILURES = frozenset({None, Verdict.SUCCEEDED, Verdict.STOPPED, Verdict.PRUNED})
"""Verdicts of a point that are no failure: open, succeeded, or stopped by its user or its batch."""


@dataclass(frozen=True, kw_only=True)
class PointState:
    """A point and its runs, which are attempts at the same job, oldest first."""

    point: BatchPoint
    runs: tuple[Run, ...] = ()
    nodes: tuple[Run, ...] = ()
    """Rows of further nodes of these runs."""

    @property
    def rows(self) -> tuple[Run, ...]:
        """All rows that had a machine: their total cost is the point's."""
        return (*self.runs, *self.nodes)

    @property
    def last(self) -> Run | None:
        """Newest run; None before the first."""
        return self.runs[-1] if self.runs else None

    @cached_property
    def is_open(self) -> bool:
        """True if one of its runs has not ended."""
        return any(run.phase is not Phase.ENDED for run in self.runs)

    @property
    def starts(self) -> int:
        """Number of starts; an attempt that follows another one does not count."""
        ids = {run.id for run in self.runs}
        return sum(run.parent not in ids for run in self.runs)

    @property
    def is_renting(self) -> bool:
        """Return whether its last run chooses or rents a machine."""
        return self.last is not None and self.last.phase in (Phase.PLAN, Phase.RENT)

    @property
    def lacks_offer(self) -> bool:
        """True if its last run found no machine: the point is then started again."""
        return self.last is not None and not self.is_open and self.last.cause is Cause.NO_OFFER

    @cached_property
    def is_waiting(self) -> bool:
        """True if it must still be started."""
        due = self.starts < self.point.starts or self.lacks_offer
        return self.point.wanted and not self.is_open and due

    @property
    def verdict(self) -> Verdict | None:
        """Verdict of its last attempt; None before its end, and when it must be started again."""
        return None if self.last is None or self.is_open or self.is_waiting else self.last.verdict

    @property
    def has_failed(self) -> bool:
        """True if it ended with a failure."""
        return self.verdict not in _NO_FAILURES


@dataclass(frozen=True, kw_only=True)
class BatchRow:
    """Row of a batch in a table."""

    batch: Batch
    states: Sequence[PointState]
    progress: BatchProgress
    is_driven: bool


def states_of(points: Iterable[BatchPoint], runs: Iterable[Run]) -> list[PointState]:
    """Return each point with its runs, in the order of the points.

    `runs`: the batch's, in any order, with the rows of further nodes.
    """
    by_point: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.created_at):
        by_point.setdefault(run.point, []).append(run)
    return [
        PointState(
            point=point,
            runs=tuple(run for run in by_point.get(point.id, ()) if not run.leader),
            nodes=tuple(run for run in by_point.get(point.id, ()) if run.leader),
        )
        for point in points
    ]


@dataclass(frozen=True, kw_only=True)
class BatchQueue:
    """Points of a batch that wait; empty, where nothing more is started."""

    queue: Sequence[PointState] = ()
    more: int = 0
    """Number of points that its search has yet to suggest."""
    running: Sequence[PointState] = ()
    parallel: int = 1

    @property
    def rounds(self) -> int:
        """Return the number of rounds in which the points run at full parallelism."""
        to_come = len(self.queue) + self.more
        return math.ceil(to_come / max(1, min(self.parallel, to_come + len(self.running))))

    @property
    def may_grow(self) -> bool:
        """Return whether points may be added: by a search, or as another attempt."""
        return self.more > 0 or any('"retry": {}' not in state.point.spec_json for state in self.running)


def holding_runs(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that hold machines for a batch, from all of the batch's runs."""
    return [run for run in runs if not run.point]


@dataclass
class SettledPoints:
    """Sums over points whose cost and verdict no longer change, so that no poll looks at them again."""

    points: int = 0
    succeeded: int = 0
    pruned: int = 0
    failed: int = 0
    usd: float = 0.0
    """USD of all their runs, shares of held machines included."""
    usd_by_holder: dict[str | None, float] = field(default_factory=lambda: defaultdict(float))
    """USD by the run that holds the machine of the slot; None: a machine of their own."""

    def add(self, state: PointState) -> None:
        """Add a point for which `is_settled` holds."""
        self.points += 1
        self.succeeded += state.verdict is Verdict.SUCCEEDED
        self.pruned += state.verdict is Verdict.PRUNED
        self.failed += state.has_failed
        for run in state.rows:
            usd = cost_usd(run, run.released_at or 0.0)
            self.usd += usd
            self.usd_by_holder[holder_of(run)] += usd


def is_settled(state: PointState) -> bool:
    """Return whether the point has its verdict, and all of its machines were released."""
    return state.verdict is not None and all(
        run.phase is Phase.ENDED
        and (run.rented_at is None or run.released_at is not None)
        and all(rental.released_at is not None for rental in run.rentals)
        for run in state.rows
    )


def progress_of_batch(
    states: Iterable[PointState],
    held_usd: float,
    now: float,
    machines: Sequence[Run] = (),
    *,
    settled: SettledPoints | None = None,
    unstarted: int = 0,
) -> BatchProgress:
    """Return the progress of the batch. `held_usd`: USD that its runs reserve of its budget.

    `machines`: the runs that hold machines for it, ended ones too. They have the bill, of which runs on
    slots show their shares. The rest is idle cost, which the forecast counts once.
    `settled`, `unstarted`: further points, which are not among `states`.
    """
    states = list(states)
    done = settled or SettledPoints()
    ended = [state for state in states if state.runs and not state.is_open and not state.is_waiting]
    runs = [run for state in states for run in state.rows]
    counted = counted_in_total([*runs, *machines])
    paid = [run for run in (*runs, *machines) if run.id in counted]
    ended_usd = done.usd + sum(cost_usd(run, now) for state in ended for run in state.rows)
    in_bills = sum(done.usd_by_holder.get(run.id, 0.0) for run in machines)
    spent = done.usd - in_bills + sum(cost_usd(run, now) for run in paid)
    shares = done.usd + sum(cost_usd(run, now) for run in runs)
    idle = max(0.0, spent - shares) if machines else 0.0
    waiting = unstarted + sum(state.is_waiting for state in states)
    running = sum(state.is_open for state in states)
    to_come, over = waiting + running, done.points + len(ended)
    return BatchProgress(
        points=to_come + over,
        waiting=waiting,
        running=running,
        succeeded=done.succeeded + sum(state.verdict is Verdict.SUCCEEDED for state in ended),
        pruned=done.pruned + sum(state.verdict is Verdict.PRUNED for state in ended),
        failed=done.failed + sum(state.has_failed for state in ended),
        spent_usd=spent,
        reserved_usd=max(0.0, held_usd - spent),
        usd_per_hour=sum(
            run.usd_per_hour
            for run in paid
            if run.phase is not Phase.ENDED and run.rented_at and not run.released_at
        ),
        forecast_usd=ended_usd * (1 + to_come / over) + idle if over else None,
        machines=sum(run.phase is not Phase.ENDED for run in machines),
        idle_usd=idle,
    )


def failure_causes(states: Iterable[PointState], opened_at: float) -> Counter[str]:
    """Count the points that failed since then, by the cause of their last run.

    `opened_at`: when the batch was submitted or resumed. Its user knows of earlier failures.
    """
    failed = [state for state in states if state.has_failed]
    return Counter(
        str(state.last.cause)
        for state in failed
        if state.last is not None and max(run.ended_at or 0.0 for run in state.runs) >= opened_at
    )


def stop_reason(
    causes: Mapping[str, int], points: int, limits: BatchLimits, opened_at: float, now: float
) -> str:
    """Return the reason why nothing new is started; empty while the batch continues.

    `causes`: the numbers of failed points, as `failure_causes` counts them, of `points` in total.
    """
    if limits.hours is not None and now - opened_at > limits.hours * 3600:
        return f"limits.hours: {limits.hours:g} h have passed"
    if causes:
        cause, count = max(causes.items(), key=lambda one: one[1])
        if count >= limits.stop.same_cause:
            return f"limits.stop.same_cause: {count} points failed with the same cause, {cause}"
    failed, share = sum(causes.values()), limits.stop.failed
    if share is not None and failed > share * points:
        return f"limits.stop.failed: {failed} of {points} points failed"
    return ""
