"""Points of a batch with their runs, as the ledger has them, and the number that may run while machines are
short.

A batch may have 10,000 points, of which few change between two polls. So the table sorts them by what can
still happen to them, and keeps sums over those to which nothing can.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import merge
from operator import attrgetter

from vastrun.launcher.batch.schedule import (
    PointState,
    SettledPoints,
    failure_causes,
    holding_runs,
    is_settled,
    progress_of_batch,
    states_of,
)
from vastrun.launcher.core import Phase, Run, Verdict
from vastrun.launcher.core.batch import Batch, BatchPoint, BatchProgress
from vastrun.launcher.ports import Ledger

_number = attrgetter("point.number")
RETRY_INTERVAL_S = 60.0
"""Seconds after which one more concurrent run is tried."""


class PointTable:
    """Points of one batch. A thousand runs are not read again because one of them has ended."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger, self._name = ledger, name
        self._revision, self._opened_at = -1, 0.0
        self._states: dict[str, PointState] = {}
        self._machines: dict[str, Run] = {}
        self._sort(())

    @property
    def machines(self) -> Sequence[Run]:
        """The runs that hold machines for the batch."""
        return list(self._machines.values())

    @property
    def states(self) -> Sequence[PointState]:
        """Every point with its runs, by number."""
        return list(self._states.values())

    @property
    def changing(self) -> Sequence[PointState]:
        """The points that have runs, and may still change: open ones, and those to be started again."""
        return list(self._changing.values())

    @property
    def first_point(self) -> BatchPoint | None:
        """The first point; None where there is none."""
        return next((state.point for state in self._states.values()), None)

    def __len__(self) -> int:
        return len(self._states)

    def of(self, point_id: str) -> PointState:
        """Return one of them."""
        return self._states[point_id]

    def waiting(self) -> list[PointState]:
        """Return the points that must still be started, by number; those that found no machine last."""
        unstarted = self._unstarted.values()
        again = sorted((state for state in self._changing.values() if state.is_waiting), key=_number)
        retried = [state for state in again if not state.lacks_offer]
        in_order = list(merge(unstarted, retried, key=_number) if retried else unstarted)
        return in_order + [state for state in again if state.lacks_offer]

    def failure_causes(self) -> Counter[str]:
        """Count the points that failed since the batch was submitted or resumed, by cause."""
        return self._settled_causes + failure_causes(self._changing.values(), self._opened_at)

    def progress(self, held_usd: float, now: float) -> BatchProgress:
        """Return the progress of the batch. `held_usd`: USD that its runs reserve of its budget."""
        return progress_of_batch(
            self._changing.values(),
            held_usd,
            now,
            self.machines,
            settled=self._settled,
            unstarted=len(self._unstarted),
        )

    def reload_if_changed(self, batch: Batch) -> None:
        """Read everything again if the batch's points have changed."""
        if batch.revision == self._revision:
            return
        self._revision, self._opened_at = batch.revision, batch.opened_at
        runs = self._ledger.runs(batch=self._name, members=True)
        self._sort(states_of(self._ledger.batches.points(self._name), runs))
        self._machines = {run.id: run for run in holding_runs(runs)}

    def refresh_open(self) -> None:
        """Read the runs that are open now again: what they cost, and on what."""
        open_runs = self._ledger.runs(open_only=True, batch=self._name, members=True)
        open_ids = {run.id for run in open_runs}
        for machine in [run for run in self._machines.values() if run.phase is not Phase.ENDED]:
            if machine.id not in open_ids:
                self._machines[machine.id] = self._ledger.get(machine.id)
        self._machines |= {run.id: run for run in holding_runs(open_runs)}
        for run in open_runs:
            state = self._states.get(run.point)
            if state is not None:
                rows = {**{known.id: known for known in state.rows}, run.id: run}
                self._replace(*states_of([state.point], rows.values()))

    def refresh(self, point: BatchPoint) -> PointState:
        """Read the runs of one point again."""
        runs = self._ledger.runs(batch=self._name, point=point.id, members=True)
        (state,) = states_of([point], runs)
        self._replace(state)
        return state

    def _replace(self, state: PointState) -> None:
        id_ = state.point.id
        if id_ in self._unstarted and not state.runs:
            self._states[id_] = self._unstarted[id_] = state  # in its place
        elif id_ in self._unstarted or id_ in self._changing:
            self._unstarted.pop(id_, None)
            self._changing.pop(id_, None)
            self._states[id_] = state
            self._put(state)
        elif self._states.get(id_) != state:  # a settled point is looked at again only after an error
            self._sort({**self._states, id_: state}.values())

    def _sort(self, states: Iterable[PointState]) -> None:
        self._states = {state.point.id: state for state in states}
        self._unstarted: dict[str, PointState] = {}
        """Points without a run, by number."""
        self._changing: dict[str, PointState] = {}
        self._settled = SettledPoints()
        self._settled_causes: Counter[str] = Counter()
        self.durations_s: list[float] = []
        """Seconds for which the successful points had their machines."""
        self.first_run: Run | None = None
        """The oldest run of a point; None before the first."""
        self.newest_at = -math.inf
        """Epoch seconds at which the newest run of a point was started; -inf before the first."""
        for state in self._states.values():
            self._put(state)

    def _put(self, state: PointState) -> None:
        for run in state.runs:
            first = self.first_run
            if first is None or run.id == first.id or run.created_at < first.created_at:
                self.first_run = run
            self.newest_at = max(self.newest_at, run.created_at)
        if is_settled(state):
            self._settled.add(state)
            self._settled_causes += failure_causes([state], self._opened_at)
            last = state.last if state.verdict is Verdict.SUCCEEDED else None
            if last and last.rented_at and last.released_at:
                self.durations_s.append(last.released_at - last.rented_at)
        else:
            (self._changing if state.runs else self._unstarted)[state.point.id] = state


class Shortage:
    """Machine shortage as one drive of a batch has seen it."""

    def __init__(self) -> None:
        self._slots, self._since = math.inf, 0.0
        self._without: dict[str, str] = {}
        """Reasons why points found no machine although no other run had one, by point."""

    def note(self, state: PointState, running: int, now: float) -> str:
        """Note that a point found no machine while `running` other runs continued; return a new message."""
        is_new = running > 0 and self._slots == math.inf
        if running:
            self._slots, self._since = running, now
        else:
            self._without[state.point.id] = "" if state.last is None else state.last.detail
        return f"no more machines available; {running} points are running, the others wait" if is_new else ""

    def slots(self, parallel: int, now: float) -> int:
        """Return the maximum number of concurrent runs."""
        return int(min(parallel, self._slots + max(0.0, now - self._since) // RETRY_INTERVAL_S))

    def is_hopeless(self, state: PointState) -> bool:
        """Return whether the point found no machine although no other run had one."""
        return state.point.id in self._without

    def stop_reason(self, waiting: int, same_cause: int) -> str:
        """Return why nothing new is started any more; empty while other points may find machines."""
        if not self._without or (waiting and len(self._without) < same_cause):
            return ""
        return f"no offer: {list(self._without.values())[-1]}"
