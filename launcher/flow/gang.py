"""Gang: the nodes of one run, as their rows show them. Nothing else is known of another node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from launcher.core import Run
from launcher.core.labels import label_of, member_id
from launcher.decisions.gang import first_failed, needed
from launcher.flow.phase_end import PhaseEnd, ended_by
from launcher.ports import Ledger

_LOOK_S = 0.5
"""A look at the rows holds for so long."""


class Gang:
    """The other nodes of a run; none where it has one."""

    def __init__(self, run: Run, nodes: int, ledger: Ledger, now: Callable[[], float], *, least: int) -> None:
        """`least`: how many nodes a training needs to go on without those that left."""
        self._run, self._nodes, self._ledger, self._now = run, nodes, ledger, now
        self._least = least
        self._others: Sequence[Run] = ()
        self._looked_at = -math.inf

    @property
    def is_alone(self) -> bool:
        """The run has one node."""
        return self._nodes == 1

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of all machines of the run, by node; none where it has one."""
        if self.is_alone:
            return ()
        leader = self._run.leader or self._run.id
        return tuple(label_of(member_id(leader, node), self._run.ledger) for node in range(self._nodes))

    def others(self, *, anew: bool = False) -> Sequence[Run]:
        """Return the rows of the other nodes; `anew`: as they are at this moment."""
        if self.is_alone:
            return ()
        if anew or not 0 <= self._now() - self._looked_at < _LOOK_S:
            leader = self._run.leader or self._run.id
            rows = [self._ledger.get(leader), *self._ledger.runs(leader=leader)]
            self._others = [row for row in rows if row.id != self._run.id]
            self._looked_at = self._now()
        return self._others

    def end(self, *, anew: bool = False) -> PhaseEnd | None:
        """Return the end of all of them because one has failed; None: none has."""
        failed = first_failed(needed(self.others(anew=anew), self._least))
        return None if failed is None else ended_by(failed)
