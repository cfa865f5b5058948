"""Joint: what the supervisors of all nodes saw of one launch. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from trainer.contract.outcome import Hang
from trainer.supervision.diagnosis import Watched, ends_here
from trainer.supervision.peers import NodeState, Peers
from trainer.supervision.stall import stuck


def joint(box: Path, watched: Watched, peers: Peers) -> Watched:
    """The same with what the other nodes saw, once their ranks have ended too: all conclude alike."""
    if peers.place.nodes == 1:
        return watched
    ends = ends_here(box, watched)
    peers.tell(
        ends=ends,
        failing=any(dated.failed for dated in ends),
        killed=tuple(sorted(watched.killed)),
        memory_killed=watched.memory_killed,
    )
    peers.wait_until_ended()
    states = [peers.state, *peers.others.values()]
    return replace(
        watched,
        elsewhere=tuple(dated for state in states[1:] for dated in state.ends or ()),
        killed=frozenset(rank for state in states for rank in state.killed),
        memory_killed=any(state.memory_killed for state in states),
        stop_cause=watched.stop_cause or peers.stop_cause,
        stopped_at=min((state.stopped_at for state in states if state.stopped_at is not None), default=None),
        hang=hang_of(states),
        lost=tuple(sorted(peers.lost)),
    )


def hang_of(states: Sequence[NodeState]) -> Hang | None:
    """Of the ranks that are stuck on each node, the one that all others wait for."""
    hangs = {
        state.culprit: state.hang for state in states if state.culprit is not None and state.hang is not None
    }
    if not hangs:
        return None
    waits = tuple(wait for hang in hangs.values() for wait in hang.waits)
    return replace(hangs[stuck([*hangs])], waits=waits)
