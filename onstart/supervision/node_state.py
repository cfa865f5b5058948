"""NodeState: the state that the supervisor of a node sends to the other nodes. Standard library only."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.contract.outcome import Hang
from vastrun.onstart.supervision.diagnosis import TimedRankEnd
from vastrun.onstart.supervision.restarts import Restart
from vastrun.onstart.supervision.stall import RankProgress


@dataclass(frozen=True, kw_only=True)
class NodeState:
    run_id: str
    node: int
    start: int = 0
    """Number of the start of the ranks that the other fields describe; 0: the first."""
    stop_cause: str | None = None
    """Cause of a stop request to this node; None: there was none."""
    stopped_at: float | None = None
    """Epoch seconds at which it asked its ranks to stop."""
    stopped_at_step: int | None = None
    """Step that each of its ranks had reached by then."""
    failing: bool = False
    """True when one of its ranks has failed."""
    stalled: bool = False
    """True when its ranks make no progress."""
    ends: tuple[TimedRankEnd, ...] | None = None
    """Ends of its ranks; None while one of them runs."""
    killed: tuple[int, ...] = ()
    """Ranks that its supervisor killed."""
    culprit: RankProgress | None = None
    """The stalled rank for which its other ranks wait."""
    hang: Hang | None = None
    """The evidence of that hang."""
    lost: tuple[int, ...] = ()
    """Nodes that it can no longer reach."""
    has_concluded: bool = False
    """True when it has diagnosed the end of this start, and waits for the decision."""
    gpus: int | None = None
    """Number of its GPUs that respond then; None: unknown, or it has none."""
    restart: Restart | None = None
    """The last restart that the first node decided for every node."""
    is_over: bool = False
    """True when it will not start ranks again."""
    why_over: str = ""
    """Reason of the first node's decision against a restart."""
    sent_at: float = 0.0
    """Epoch seconds of this message, by the clock of its sender."""
    clocks: tuple[float, ...] = ()
    """Seconds by which the clock of each node is ahead of the first node's, as measured there."""

    def at_start(self, number: int) -> NodeState:
        """Return the state for the next start of the ranks; other fields are reset."""
        return NodeState(
            run_id=self.run_id,
            node=self.node,
            start=number,
            stop_cause=self.stop_cause,
            lost=self.lost,
            restart=self.restart,
        )
