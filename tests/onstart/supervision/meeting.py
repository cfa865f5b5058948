"""Supervisors of several nodes that have met, all in this process."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from tests.ports import free_port
from tests.waiting import LONGEST_S
from vastrun.onstart.nodes import ThisNode
from vastrun.onstart.supervision.diagnosis import ObservedLaunch
from vastrun.onstart.supervision.peers import Peers
from vastrun.onstart.supervision.rank_process import RankProcess

_T = TypeVar("_T")


@contextmanager
def meeting(nodes: int, *, ahead_s: Sequence[float] = ()) -> Iterator[list[Peers]]:
    """The sides of so many nodes. `ahead_s`: by how much the clock of each is ahead."""
    port = free_port(2)
    with ExitStack() as stack:
        places = [ThisNode(node=node, nodes=nodes, host="127.0.0.1", port=port) for node in range(nodes)]
        sides = [
            stack.enter_context(Peers(this_node=place, run_id="calm-heron", clock=_clock(ahead)))
            for place, ahead in zip(places, [*ahead_s, *[0.0] * nodes], strict=False)
        ]
        at_once(lambda peers: peers.connect_all(within_s=LONGEST_S, is_cancelled=lambda: False), sides)
        yield sides


def _clock(ahead_s: float) -> Callable[[], float]:
    return lambda: time.time() + ahead_s


def at_once(work: Callable[..., _T], *each: Sequence[object]) -> list[_T]:
    """What it returns for each, done by a thread each."""
    with ThreadPoolExecutor(len(each[0])) as threads:
        return list(threads.map(work, *each))


def observed(peers: Peers, exit_code: int, at: float) -> ObservedLaunch:
    """A node whose only rank left so."""
    node = peers.this_node
    process = RankProcess(rank=node.node, pid=1, started_at=1.0, exit_code=exit_code, ended_at=at)
    return ObservedLaunch(
        started_at=1.0,
        world_size=node.nodes,
        training=False,
        processes=(process,),
        agent_exit=1,
        this_node=node,
    )
