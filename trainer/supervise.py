"""The supervisor: starts the ranks, watches them to their end, writes the evidence. Standard library only.

`python -m trainer.supervise`, with the box's folder in VASTRUN_BOX. Leaves as `docs/box.md` says.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trainer import layout
from trainer.job import Job
from trainer.outcome import Outcome, Reason
from trainer.records import write_atomically
from trainer.supervision.conclude import Watched, conclude, nothing_started
from trainer.supervision.environment import rank_environment
from trainer.supervision.launch import AGENT_LOG, Launch
from trainer.supervision.processes import adopt_orphans, kill_descendants, memory_kills
from trainer.supervision.progress import Progress
from trainer.supervision.pushing import PUSH_LOG, begin_pushing, push_last
from trainer.supervision.ranklogs import SUPERVISOR, MergedLog, Tail
from trainer.supervision.stop import StopRequest
from trainer.supervision.watch import Watch

EXIT_CODE_OF: Mapping[Reason, int] = {
    "finished": 0,
    "error": 1,
    "signal": 1,
    "communication": 1,
    "data": 1,
    "disk": 1,
    "hang": 75,
    "oom": 76,
    "stopped": 143,
}

_AGENT_S = 5.0
"""How long the agent may take to record how the ranks ended."""
_DRAIN_S = 10.0
_KILL_S = 5.0
_RESERVE = 1 << 18


def main() -> int:
    """Supervises the job of this box; the outcome is written on every path."""
    box = Path(os.environ["VASTRUN_BOX"]).resolve()
    started_at, job = time.time(), None
    stop = StopRequest.listen(box / layout.STOP)
    adopt_orphans()
    reserve = _reserve(box)
    try:
        job = Job.read(box)
        outcome = _supervise(box, job, stop)
    except BaseException as error:
        kill_descendants(within_s=_KILL_S)
        reserve.unlink(missing_ok=True)
        write_atomically(box / layout.OUTCOME, nothing_started(error, job, started_at).to_json())
        raise
    reserve.unlink(missing_ok=True)
    write_atomically(box / layout.OUTCOME, outcome.to_json())
    return EXIT_CODE_OF[outcome.reason]


def _reserve(box: Path) -> Path:
    """A file that gives its room back before the outcome is written: a full disk cannot keep it away."""
    path = box / layout.RUN / ".reserve"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(_RESERVE))
    return path


def _supervise(box: Path, job: Job, stop: StopRequest) -> Outcome:
    started_at, memory_kills_before = time.time(), memory_kills()
    log = _merged_log(box, job)
    log.say(f"starting {shlex.join(job.command or ('trainer.train',))} on {job.ranks} rank(s)")
    launch = Launch.begin(box, job.ranks, rank_environment(job, box, os.environ))
    begin_pushing(box, job)
    watch = Watch(box=box, job=job, launch=launch, log=log, stop=stop, progress=Progress(box=box))
    watch.until_over()
    agent = launch.end(within_s=_AGENT_S)
    push_last(box, job)
    log.drain(within_s=_DRAIN_S)
    watched = Watched(
        started_at=started_at,
        processes=launch.processes(),
        agent=agent,
        agent_exit=launch.agent.poll(),
        killed=frozenset(launch.killed),
        hang=watch.hang,
        stop_cause=stop.cause if watch.stopped_at else None,
        stopped_at=watch.stopped_at,
        memory_killed=memory_kills() > memory_kills_before,
        disk_full=shutil.disk_usage(box).free < _RESERVE,
    )
    watch.report()
    outcome = conclude(box, job, watched)
    log.say(f"{outcome.reason}: {outcome.detail}")
    return replace(outcome, ended_at=time.time())


def _merged_log(box: Path, job: Job) -> MergedLog:
    ranks = [
        Tail(path=box / layout.RAW_LOGS / f"rank-{rank}.log", source=f"rank{rank}")
        for rank in range(job.ranks)
    ]
    agent = Tail(path=box / AGENT_LOG, source=SUPERVISOR)
    push = Tail(path=box / PUSH_LOG, source="push")
    return MergedLog(path=box / layout.LOG, tails=(agent, push, *ranks))


if __name__ == "__main__":
    sys.exit(main())
