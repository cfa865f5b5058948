"""NodeState: what the supervisor of a node tells those of the others. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.contract.outcome import Hang
from vastrun.trainer.supervision.diagnosis import DatedEnd
from vastrun.trainer.supervision.restarts import Restart
from vastrun.trainer.supervision.stall import RankProgress


@dataclass(frozen=True, kw_only=True)
class NodeState:
    """How a node stands."""

    run_id: str
    node: int
    start: int = 0
    """The start of the ranks that the rest is about; 0: the first."""
    joins: bool = False
    """It came while the others train, has no ranks yet, and begins them in the start of the others."""
    stop_cause: str | None = None
    """It was asked to stop."""
    stopped_at: float | None = None
    """When it asked its ranks to stop; epoch seconds."""
    stopped_at_step: int | None = None
    """Step that each of its ranks had reported by then."""
    failing: bool = False
    """A rank of its has failed."""
    stalled: bool = False
    """Its ranks make no progress."""
    ends: tuple[DatedEnd, ...] | None = None
    """How its ranks ended; None while one of them runs."""
    killed: tuple[int, ...] = ()
    """Ranks that its supervisor killed."""
    memory_killed: bool = False
    """The kernel killed something there for want of memory."""
    memory_killed_at: float | None = None
    """Time at which it last killed a process of the run there; None: it did not, or it is not known."""
    culprit: RankProgress | None = None
    """Of its ranks that stand still, the one that the others wait for."""
    hang: Hang | None = None
    """The same as evidence."""
    lost: tuple[int, ...] = ()
    """Nodes that it cannot reach any more."""
    has_concluded: bool = False
    """It knows how this start ended, and waits for what follows."""
    gpus: int | None = None
    """How many of its GPUs answer then; None: not known, or it has none."""
    restart: Restart | None = None
    """What the first node decided last: how the ranks are started again on every node."""
    is_over: bool = False
    """It starts no ranks any more."""
    why_over: str = ""
    """Why the first node decided so."""
    said_at: float = 0.0
    """When it said this, by its own clock; epoch seconds."""
    clocks: tuple[float, ...] = ()
    """By how many seconds the clock of each node is ahead of the first node's, as that one heard."""

    def at_start(self, number: int) -> NodeState:
        """Return what is still so when the ranks are started once more."""
        return NodeState(
            run_id=self.run_id,
            node=self.node,
            start=number,
            stop_cause=self.stop_cause,
            lost=self.lost,
            restart=self.restart,
        )
