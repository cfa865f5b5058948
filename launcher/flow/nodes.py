"""Nodes of a run, as their rows show them. Nothing else is known of another node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import label_of, member_id
from vastrun.launcher.core.phases import Result
from vastrun.launcher.decisions.nodes import first_failed, have_reached, is_replacement, required_nodes
from vastrun.launcher.flow.phase_result import PhaseResult, failed_by_node
from vastrun.launcher.ports import Ledger

TOO_LATE = PhaseResult(
    result=Result.FAILED, cause=Cause.STOPPED, detail="the training was over before this machine joined it"
)
_POLL_INTERVAL_S = 0.5
"""Seconds for which the rows that were read are used."""


class NodeGroup:
    """The other nodes of a run; empty where it has one."""

    def __init__(self, run: Run, spec: JobSpec, ledger: Ledger, now: Callable[[], float]) -> None:
        self._run, self._ledger, self._now = run, ledger, now
        self._nodes, self._min_nodes = spec.nodes, spec.min_nodes
        self._other_rows: Sequence[Run] = ()
        self._read_at = -math.inf

    @property
    def is_alone(self) -> bool:
        """True if the run has one node."""
        return self._nodes == 1

    @property
    def replaces(self) -> bool:
        """True if this machine replaces one that left, while the others train."""
        return is_replacement(self._run)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels of all machines of the run, by node; empty where it has one."""
        if self.is_alone:
            return ()
        leader = self._run.leader or self._run.id
        return tuple(label_of(member_id(leader, node), self._run.ledger) for node in range(self._nodes))

    def other_rows(self, *, fresh: bool = False) -> Sequence[Run]:
        """Return the rows of the other nodes; `fresh`: read them now."""
        if self.is_alone:
            return ()
        # Asked before each request to the box, and the ledger may be on another computer.
        if fresh or not 0 <= self._now() - self._read_at < _POLL_INTERVAL_S:
            leader = self._run.leader or self._run.id
            rows = [self._ledger.get(leader), *self._ledger.runs(leader=leader)]
            self._other_rows = [row for row in rows if row.id != self._run.id]
            self._read_at = self._now()
        return self._other_rows

    def end(self, *, fresh: bool = False) -> PhaseResult | None:
        """Return the result that ends all nodes because one has failed; None: none has.

        A replacement ends, too, when the others are done before it trains.
        """
        other_rows = [other for other in self.other_rows(fresh=fresh) if other.node != self._run.node]
        # Rows of the same node are of machines that this one replaces: their failure is why it exists.
        failed = first_failed(required_nodes(other_rows, self._min_nodes))
        if failed is not None:
            return failed_by_node(failed)
        return TOO_LATE if self.replaces and self._is_too_late(other_rows) else None

    def _is_too_late(self, other_rows: Sequence[Run]) -> bool:
        first = next(other for other in other_rows if not other.leader)
        return have_reached([first], Phase.COLLECT) and self._ledger.get(self._run.id).step == 0
