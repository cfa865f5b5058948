"""The supervisor: starts the ranks, watches them, starts them again if that can help, writes the evidence.

`python -m trainer.supervise`, with the box's folder in VASTRUN_BOX. Leaves as `docs/box.md` says. Standard
library only.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from trainer.contract import layout
from trainer.contract.job import Job
from trainer.contract.outcome import Outcome, StartRecord
from trainer.contract.reasons import REASONS
from trainer.contract.records import write_atomically
from trainer.distributed.nodes import place_of, torchrun_line
from trainer.supervision.agents import Agents
from trainer.supervision.conclude import conclude, nothing_started, start_record_of, stopped_between
from trainer.supervision.diagnosis import diagnose
from trainer.supervision.evidence import stamps
from trainer.supervision.launch import healthy_gpus
from trainer.supervision.peers import Peers
from trainer.supervision.processes import adopt_orphans, kill_descendants
from trainer.supervision.pushing import push_last
from trainer.supervision.ranklogs import MergedLog
from trainer.supervision.restarts import NoRestart, Restart, Start, next_start
from trainer.supervision.start import DRAIN_S, RESERVE, Begin, put_aside, run_ranks
from trainer.supervision.stop import StopRequest
from trainer.supervision.turn import TURN, await_turn
from trainer.supervision.wandb_end import end_wandb

_KILL_S = 5.0
_LOOK_EVERY_S = 0.1


def main(begin: Begin | None = None) -> int:
    """Supervise the job of this box; the outcome is written on every path. `begin` starts the ranks."""
    box, agents = Path(os.environ["VASTRUN_BOX"]).resolve(), Agents()
    adopt_orphans()
    if TURN in os.environ:
        await_turn(box, agents)
    started_at, job = time.time(), None
    stop = StopRequest.listen(box / layout.STOP)
    reserve = _reserve(box)
    try:
        job = Job.read(box)
        with Peers(place=place_of(job.nodes, os.environ), run_id=job.run_id) as peers:
            outcome = _supervise(box, job, stop, begin or agents.begin, peers)
    except BaseException as error:
        kill_descendants(within_s=_KILL_S)
        reserve.unlink(missing_ok=True)
        write_atomically(box / layout.OUTCOME, nothing_started(error, job, started_at).to_json())
        raise
    kill_descendants(within_s=_KILL_S)
    reserve.unlink(missing_ok=True)
    write_atomically(box / layout.OUTCOME, outcome.to_json())
    exit_code = REASONS[outcome.reason].exit_code
    # The evidence comes first: whoever asked for a stop may not wait for W&B.
    write_atomically(box / layout.OUTCOME, end_wandb(box, job, outcome, exit_code).to_json())
    return exit_code


def _reserve(box: Path) -> Path:
    """Keep a file that gives its room back before the outcome is written: a full disk cannot keep it away."""
    path = box / layout.RUN / ".reserve"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(RESERVE))
    return path


def _shown(command: str) -> str:
    """Return the first line of a script."""
    first, _, rest = command.partition("\n")
    return f"{first} …" if rest else first


def _supervise(box: Path, job: Job, stop: StopRequest, begin: Begin, peers: Peers) -> Outcome:
    """Start the ranks, again and again, until a start is the last."""
    log = MergedLog(path=box / layout.LOG)
    log.say(f"starting {_shown(shlex.join(job.command or ('trainer.train',)))} on {job.ranks} rank(s)")
    log.say(f"as {_shown(torchrun_line(job, peers.place))}")
    # What lies there already proves nothing of this training.
    before = stamps(job.success, box)
    peers.meet(within_s=job.start_s, given_up=lambda: stop.cause is not None)
    start, history = Start(world_size=job.ranks), list[StartRecord]()
    while True:
        watched = run_ranks(box, job, start, begin, stop, log, peers)
        diagnosis = diagnose(box, watched)
        history.append(start_record_of(box, watched, diagnosis))
        log.say(f"{history[-1].reason}: {history[-1].detail}")
        following = next_start(job, history, start, _healthy(job, history[-1]))
        if isinstance(following, NoRestart) or not _pause(following, stop):
            break
        put_aside(box, start.number)
        start = following.start
        log.say(_how(start, job))
    # Before the outcome: once that is there, the box may be collected and destroyed.
    push_last(box, job, stop)
    log.drain(within_s=DRAIN_S)
    outcome = _outcome(conclude(box, job, watched, diagnosis, history, before), following, stop, log)
    return replace(outcome, ended_at=time.time())


def _healthy(job: Job, ended: StartRecord) -> tuple[str, ...] | None:
    return healthy_gpus() if job.gpus and REASONS[ended.reason].is_curable else None


def _pause(following: Restart, stop: StopRequest) -> bool:
    """Wait; return True when the pause is over and nobody has asked to stop."""
    until = time.monotonic() + following.after_s
    while stop.cause is None and time.monotonic() < until:
        time.sleep(_LOOK_EVERY_S)
    return stop.cause is None


def _how(start: Start, job: Job) -> str:
    fewer = f" of {job.ranks}" if start.world_size < job.ranks else ""
    cap = "" if start.micro_batch is None else f", at most {start.micro_batch} windows at once on each"
    return f"starting again (restart {start.number}) on {start.world_size}{fewer} rank(s){cap}"


def _outcome(last: Outcome, following: Restart | NoRestart, stop: StopRequest, log: MergedLog) -> Outcome:
    """Say what became of the training when nothing follows its last start."""
    if isinstance(following, Restart):
        stopped = stopped_between(last, stop.cause or "stopped")
        log.say(f"stopped: {stopped.detail}")
        return stopped
    if last.reason not in ("finished", "stopped"):
        log.say(f"not started again: {following.why}")
    return last


if __name__ == "__main__":
    sys.exit(main())
