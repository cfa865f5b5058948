"""Points of a batch with their runs, as the ledger has them, and the number that may run while machines are
short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vastrun.launcher.batch.schedule import PointState, holding_runs, states_of
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.batch import Batch, BatchPoint
from vastrun.launcher.ports import Ledger

RETRY_INTERVAL_S = 60.0
"""Seconds after which one more concurrent run is tried."""


class PointTable:
    """Points of one batch. A thousand runs are not read again because one of them has ended."""

    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger, self._name = ledger, name
        self._revision = -1
        self._states: dict[str, PointState] = {}
        self._machines: dict[str, Run] = {}

    @property
    def machines(self) -> Sequence[Run]:
        """The runs that hold machines for the batch."""
        return list(self._machines.values())

    @property
    def states(self) -> Sequence[PointState]:
        """Every point with its runs, by number."""
        return list(self._states.values())

    def of(self, point_id: str) -> PointState:
        """Return one of them."""
        return self._states[point_id]

    def reload_if_changed(self, batch: Batch) -> bool:
        """Read everything again if the batch's points have changed. Return whether they have."""
        if batch.revision == self._revision:
            return False
        self._revision = batch.revision
        runs = self._ledger.runs(batch=self._name, members=True)
        found = states_of(self._ledger.batches.points(self._name), runs)
        self._states = {state.point.id: state for state in found}
        self._machines = {run.id: run for run in holding_runs(runs)}
        return True

    def refresh_open(self) -> None:
        """Read the runs that are open now again: what they cost, and on what."""
        open_runs = self._ledger.runs(open_only=True, batch=self._name, members=True)
        for machine in [run for run in self._machines.values() if run.phase is not Phase.ENDED]:
            if all(run.id != machine.id for run in open_runs):
                self._machines[machine.id] = self._ledger.get(machine.id)
        self._machines |= {run.id: run for run in holding_runs(open_runs)}
        for run in open_runs:
            state = self._states.get(run.point)
            if state is not None:
                rows = {**{known.id: known for known in state.rows}, run.id: run}
                (self._states[run.point],) = states_of([state.point], rows.values())

    def refresh(self, point: BatchPoint) -> PointState:
        """Read the runs of one point again."""
        runs = self._ledger.runs(batch=self._name, point=point.id, members=True)
        (state,) = states_of([point], runs)
        self._states[point.id] = state
        return state


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
