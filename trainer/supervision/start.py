"""One start of the ranks: started, watched to their end, put aside for the next. Standard library only."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job
from trainer.distributed.nodes import network_environment
from trainer.supervision.diagnosis import Watched
from trainer.supervision.environment import rank_environment
from trainer.supervision.joint import joint
from trainer.supervision.launch import Launch
from trainer.supervision.peers import Peers
from trainer.supervision.processes import memory_kills
from trainer.supervision.progress import ProgressTracker
from trainer.supervision.pushing import PUSH_LOG, begin_pushing
from trainer.supervision.ranklogs import SUPERVISOR, MergedLog, Tail
from trainer.supervision.restarts import Start
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
    """Starts the ranks and returns when none of them, nor anything that they started, is left."""
    started_at, memory_kills_before, place = time.time(), memory_kills(), peers.place
    inherited = {**os.environ, **network_environment(place)}
    launch = begin(box, start.world_size, rank_environment(job, start, box, inherited))
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
        memory_killed=memory_kills() > memory_kills_before,
        disk_full=shutil.disk_usage(box).free < RESERVE,
    )
    return joint(box, watched, peers)


def put_aside(box: Path, number: int) -> None:
    """Move what the ranks of start `number` wrote of themselves to a folder of its own."""
    folder = box / layout.STARTS / str(number)
    folder.mkdir(parents=True)
    for name in _OF_ONE_START:
        with suppress(FileNotFoundError):
            (box / name).rename(folder / Path(name).name)


def _tails(box: Path, numbers: Iterable[int]) -> tuple[Tail, ...]:
    """Whose output becomes the log of the run."""
    ranks = [Tail(path=box / layout.RAW_LOGS / f"rank-{rank}.log", source=f"rank{rank}") for rank in numbers]
    agent = Tail(path=box / layout.AGENT_LOG, source=SUPERVISOR)
    push = Tail(path=box / PUSH_LOG, source="push")
    return (agent, push, *ranks)
