"""Agreement: what follows on a start of the ranks, the same on all nodes. Standard library only.

The first node decides for all, since the checkpoints lie there and since every word passes through it. The
others do what it says. Where it cannot know that all nodes are there, no ranks are started again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Optional

from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS, StartRecord
from vastrun.trainer.supervision.launch import healthy_gpus
from vastrun.trainer.supervision.peers import Peers
from vastrun.trainer.supervision.restarts import NoRestart, Restart, Start, gpus_for, next_start

CONCLUDE_S = 60.0
"""How long a node may take to conclude on a start when the first node has."""
_LOOK_EVERY_S = 0.1

Healthy = Optional[tuple[str, ...]]  # noqa: UP045 - evaluated by Python 3.9, too
"""The GPUs that answer, by UUID; None: that is not known."""


def what_follows(job: Job, history: Sequence[StartRecord], last: Start, peers: Peers) -> Restart | NoRestart:
    """Return what follows on the last start, which began as `last`, as the nodes have agreed."""
    if job.nodes > 1 and history[-1].reason != "finished" and peers.can_do_without_this:
        return NoRestart(why="the other nodes go on without this one")
    healthy = _healthy(job, history[-1], peers)
    if job.nodes == 1:
        return next_start(job, history, last, healthy)
    peers.tell(has_concluded=True, gpus=None if healthy is None else len(healthy))
    decided = (
        _decide(job, history, last, healthy, peers)
        if peers.this_node.is_host
        else _hear_decision(peers, last)
    )
    if isinstance(decided, NoRestart):
        return decided
    start = replace(decided.start, gpus=gpus_for(job, decided.start.world_size, healthy))
    return replace(decided, start=start)


def first_start(job: Job, peers: Peers) -> Start:
    """Return how the ranks begin here: as the job says, or as those of the others did that this one joins."""
    first, number = peers.others.get(0), peers.state.start
    if first is None or first.restart is None or first.restart.start.number != number:
        return Start(number=number, world_size=job.ranks)
    return replace(first.restart.start, gpus=())  # of the first node; here all answer


def unreachable(peers: Peers) -> str:
    """Say which nodes can no longer be reached."""
    return f"node {', '.join(map(str, sorted(peers.away)))} can no longer be reached"


def _decide(
    job: Job, history: Sequence[StartRecord], last: Start, healthy: Healthy, peers: Peers
) -> Restart | NoRestart:
    following = next_start(job, history, last, healthy)
    if isinstance(following, Restart):
        following = _when_all_concluded(job, history, last, healthy, peers)
    if isinstance(following, Restart):
        peers.tell(restart=following)
    else:
        peers.tell(is_over=True, why_over=following.why)
    return following


def _when_all_concluded(
    job: Job, history: Sequence[StartRecord], last: Start, healthy: Healthy, peers: Peers
) -> Restart | NoRestart:
    """Decide when no rank is left anywhere, by the GPUs of all nodes."""
    deadline = time.monotonic() + CONCLUDE_S
    while (late := _still_ending(job, peers)) and not peers.away and time.monotonic() < deadline:
        peers.listen()
        time.sleep(_LOOK_EVERY_S)
    if peers.away:
        return NoRestart(why=unreachable(peers))
    if late:
        return NoRestart(why=f"node {', '.join(late)} did not end its ranks within {CONCLUDE_S:g} s")
    elsewhere = [state.gpus for state in peers.in_this_start if state.gpus is not None]
    return next_start(job, history, last, healthy, elsewhere)


def _still_ending(job: Job, peers: Peers) -> list[str]:
    """Return the other nodes that have not concluded on this start."""
    concluded = {state.node for state in peers.in_this_start if state.has_concluded}
    concluded |= {state.node for state in peers.others.values() if state.joins}  # no rank of its runs yet
    return [str(node) for node in range(1, job.nodes) if node not in concluded]


def _hear_decision(peers: Peers, last: Start) -> Restart | NoRestart:
    """Return what the first node decided. Its silence is a decision, too."""
    while True:
        first = peers.others.get(0)
        if first is not None and first.restart is not None and first.restart.start.number > last.number:
            return first.restart
        if first is not None and first.is_over:
            return NoRestart(why=first.why_over)
        if peers.away:
            return NoRestart(why=unreachable(peers))
        peers.listen()
        time.sleep(_LOOK_EVERY_S)


def _healthy(job: Job, ended: StartRecord, peers: Peers) -> Healthy:
    if not (job.gpus and REASONS[ended.reason].is_curable):
        return None
    return healthy_gpus() if job.nodes == 1 else _while_talking(healthy_gpus, peers)


def _while_talking(look: Callable[[], Healthy], peers: Peers) -> Healthy:
    """Return what it finds. It may take as long as a node that says nothing is waited for."""
    found: list[Healthy] = []
    looking = threading.Thread(target=lambda: found.append(look()), daemon=True)
    looking.start()
    while looking.is_alive():
        peers.listen()
        time.sleep(_LOOK_EVERY_S)
    return found[0] if found else None
