"""One start of the ranks: started, watched to their end, put aside for the next. Standard library only."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job
from trainer.contract.outcome import Hang
from trainer.distributed.nodes import Place, network_environment
from trainer.supervision.diagnosis import Watched, ends_here
from trainer.supervision.environment import rank_environment
from trainer.supervision.launch import Launch
from trainer.supervision.peers import NodeState, Peers
from trainer.supervision.processes import memory_kills
from trainer.supervision.progress import ProgressTracker
from trainer.supervision.pushing import PUSH_LOG, begin_pushing
from trainer.supervision.ranklogs import SUPERVISOR, MergedLog, Tail
from trainer.supervision.restarts import Start
from trainer.supervision.stall import stuck
from trainer.supervision.stop import StopRequest
from trainer.supervision.watch import Watch

Begin = Callable[[Path, int, Mapping[str, str]], Launch]
"""Starts the ranks: the box, how many, their environment."""

RESERVE = 1 << 18
"""Less room on the disk than this is a full disk."""

_AGENT_S = 5.0
"""How long the agent may take to record how the ranks ended."""
DRAIN_S = 10.0
"""How long the rest of the logs may take."""
_OF_ONE_START = (
    layout.HEARTBEATS,
    layout.RANKS,
    layout.RAW_LOGS,
    layout.STACKS,
    layout.FLIGHT_RECORDER,
    layout.PLAN,
    layout.FINAL,
)


def run_ranks(
    box: Path, job: Job, start: Start, begin: Begin, stop: StopRequest, log: MergedLog, peers: Peers
) -> Watched:
    """Start the ranks and return when none of them, nor anything that they started, is left."""
    # The kernel's counter is of all that ever happened here: what counts is by how much it grows.
    started_at, memory_kills_before, place = time.time(), memory_kills(box), peers.place
    launch = begin(box, start.world_size, environment_of(box, job, start, place))
    begin_pushing(box, job)
    log.follow(_tails(box, place.ranks(start.world_size)))
    watch = Watch(
        box=box, job=job, launch=launch, log=log, stop=stop, peers=peers, tracker=ProgressTracker(box=box)
    )
    watch.until_over()
    agent = launch.end(within_s=_AGENT_S)
    log.drain(within_s=DRAIN_S)
    watch.report()
    watched = Watched(
        started_at=started_at,
        place=place,
        world_size=start.world_size * place.nodes,
        training=job.train is not None,
        processes=launch.processes(),
        agent=agent,
        agent_exit=launch.agent.poll(),
        killed=frozenset(launch.killed),
        hang=watch.hang,
        stop_cause=stop.cause if watch.stopped_at else None,
        stopped_at=watch.stopped_at,
        memory_killed=memory_kills(box) > memory_kills_before,
        disk_full=shutil.disk_usage(box).free < RESERVE,
    )
    return joint(box, watched, peers)


def environment_of(box: Path, job: Job, start: Start, place: Place) -> dict[str, str]:
    """Return the environment of the ranks, from that of this process."""
    return rank_environment(job, start, box, {**os.environ, **network_environment(place)})


def put_aside(box: Path, number: int) -> None:
    """Move what the ranks of start `number` wrote of themselves to a folder of its own."""
    folder = box / layout.STARTS / str(number)
    folder.mkdir(parents=True)
    for name in _OF_ONE_START:
        with suppress(FileNotFoundError):
            (box / name).rename(folder / Path(name).name)


def _tails(box: Path, numbers: Iterable[int]) -> tuple[Tail, ...]:
    """Return whose output becomes the log of the run."""
    ranks = [Tail(path=box / layout.RAW_LOGS / f"rank-{rank}.log", source=f"rank{rank}") for rank in numbers]
    agent = Tail(path=box / layout.AGENT_LOG, source=SUPERVISOR)
    push = Tail(path=box / PUSH_LOG, source="push")
    return (agent, push, *ranks)


def joint(box: Path, watched: Watched, peers: Peers) -> Watched:
    """Add what the other nodes saw, once their ranks have ended too: all conclude alike."""
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
    """Return, of the ranks that are stuck on each node, the one that all others wait for."""
    hangs = {
        state.culprit: state.hang for state in states if state.culprit is not None and state.hang is not None
    }
    if not hangs:
        return None
    waits = tuple(wait for hang in hangs.values() for wait in hang.waits)
    return replace(hangs[stuck([*hangs])], waits=waits)
