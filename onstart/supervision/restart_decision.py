"""Restart decision: whether and how all nodes restart their ranks. Standard library only.

The first node decides for all, since it has the checkpoints and receives every message. The other nodes
follow. Where it cannot know that all nodes are there, no ranks are restarted.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS, StartRecord
from vastrun.onstart.supervision.launch import healthy_gpus
from vastrun.onstart.supervision.native_stack import GDB_S
from vastrun.onstart.supervision.peers import Peers
from vastrun.onstart.supervision.restarts import Start, gpus_for, next_start

CONCLUDE_TIMEOUT_S = 60.0 + GDB_S
"""Maximum seconds that the first node waits until the other nodes concluded on a start.

A node may read the native stacks of its crash first.
"""


def agree_on_restart(job: Job, history: Sequence[StartRecord], last: Start, peers: Peers) -> Start | str:
    """Return the next start of all nodes after the `last` one, or why there is none."""
    is_curable = REASONS[history[-1].reason].is_curable
    healthy = peers.listen_while(healthy_gpus) if job.gpus and is_curable else None
    if job.nodes == 1:
        return next_start(job, history, last, healthy)
    peers.publish(has_concluded=True, gpus=None if healthy is None else len(healthy))
    if peers.this_node.is_host:
        decision = _decide(job, history, last, healthy, peers)
    else:
        decision = _wait_for_decision(peers, last)
    if isinstance(decision, str):
        return decision
    return replace(decision, gpus=gpus_for(job, decision.world_size, healthy))


def unreachable_text(peers: Peers) -> str:
    """Return a line that names the nodes that can no longer be reached."""
    return f"node {', '.join(map(str, sorted(peers.disconnected)))} can no longer be reached"


def _decide(
    job: Job, history: Sequence[StartRecord], last: Start, healthy: Sequence[str] | None, peers: Peers
) -> Start | str:
    """Decide for all nodes; on a restart once no rank is left on any node, by the GPUs of all nodes."""
    decision, deadline = next_start(job, history, last, healthy), time.monotonic() + CONCLUDE_TIMEOUT_S
    while isinstance(decision, Start):
        concluded = {state.node for state in peers.in_this_start if state.has_concluded}
        late = [str(node) for node in range(1, job.nodes) if node not in concluded]
        if peers.disconnected:
            decision = unreachable_text(peers)
        elif not late:
            elsewhere = [state.gpus for state in peers.in_this_start if state.gpus is not None]
            decision = next_start(job, history, last, healthy, elsewhere)
            break
        elif time.monotonic() >= deadline:
            decision = f"node {', '.join(late)} did not end its ranks within {CONCLUDE_TIMEOUT_S:g} s"
        else:
            peers.listen()
            time.sleep(0.1)
    if isinstance(decision, Start):
        peers.publish(restart=decision)
    else:
        peers.publish(is_over=True, why_over=decision)
    return decision


def _wait_for_decision(peers: Peers, last: Start) -> Start | str:
    """Wait for the decision of the first node. A lost connection means no restart."""
    while True:
        first = peers.peer_states.get(0)
        if first is not None and first.restart is not None and first.restart.number > last.number:
            return first.restart
        if first is not None and first.is_over:
            return first.why_over
        if peers.disconnected:
            return unreachable_text(peers)
        peers.listen()
        time.sleep(0.1)
