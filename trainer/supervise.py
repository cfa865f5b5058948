"""The supervisor: starts the ranks, watches them, starts them again if that can help, writes the evidence.

`python -m vastrun.trainer.supervise`, with the box's folder in VASTRUN_BOX. Leaves as `docs/box.md` says.
Standard library only.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS, Outcome, Reason, StartRecord
from vastrun.contract.records import write_atomically
from vastrun.trainer.distributed.nodes import this_node_of, torchrun_line
from vastrun.trainer.supervision.agents import TURN, Agents, await_turn
from vastrun.trainer.supervision.agreement import first_start, unreachable, what_follows
from vastrun.trainer.supervision.checkpoint_restore import OwnCheckpoints
from vastrun.trainer.supervision.diagnosis import Diagnosis, Watched, diagnose
from vastrun.trainer.supervision.environment import lowers_debug
from vastrun.trainer.supervision.evidence import (
    NOTHING,
    Stamp,
    end_wandb,
    read_checkpoint,
    read_final,
    read_wandb,
    run_checks,
    stamps,
)
from vastrun.trainer.supervision.launch import put_aside
from vastrun.trainer.supervision.logged_curves import LoggedCurves
from vastrun.trainer.supervision.native_stack import keep_native_stacks
from vastrun.trainer.supervision.peers import Peers, PeersError, TooLateError
from vastrun.trainer.supervision.processes import adopt_orphans, kill_descendants
from vastrun.trainer.supervision.program_files import note_files
from vastrun.trainer.supervision.progress import last_loss
from vastrun.trainer.supervision.pushing import push_last
from vastrun.trainer.supervision.ranklogs import MergedLog
from vastrun.trainer.supervision.restarts import NoRestart, Restart, Start
from vastrun.trainer.supervision.stop import StopRequest, stopped_by
from vastrun.trainer.supervision.watch import DRAIN_S, RESERVE, Begin, run_ranks

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
        this_node = this_node_of(job.nodes, os.environ)
        with Peers(this_node=this_node, run_id=job.run_id, least=job.min_nodes) as peers:
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
    program = shlex.join(job.command or ("vastrun.trainer.train",))
    log.say(f"starting {_shown(program)} on {job.ranks} rank(s)")
    log.say(f"as {_shown(torchrun_line(job, peers.this_node))}")
    if lowers_debug(job, os.environ):
        log.say("TORCH_DISTRIBUTED_DEBUG=DETAIL becomes INFO: DETAIL makes DDP on gloo crash")
    # What lies there already proves nothing of this training.
    before = stamps(job.success, box)
    if job.command is not None:
        _note_files(box, job, log)
    peers.meet(within_s=job.start_s, given_up=lambda: stop.cause is not None)
    start, history = first_start(job, peers), list[StartRecord]()
    checkpoints = OwnCheckpoints.of(box, job, log.say)
    curves = LoggedCurves.of(box, job, log.say, is_host=peers.this_node.is_host)
    while True:
        start = replace(start, resume=checkpoints.restore())
        with checkpoints.watching(), curves.reading():
            watched = run_ranks(box, job, start, begin, stop, log, peers)
        if job.command is not None:
            _keep_native_stacks(box, watched, stop, log)
        checkpoints.last_look(stop, ended_well=_all_exited_0(watched))
        diagnosis = diagnose(box, watched)
        history.append(start_record_of(box, watched, diagnosis))
        log.say(f"{history[-1].reason}: {history[-1].detail}")
        following = _after_pause(what_follows(job, history, start, peers), stop, peers)
        if isinstance(following, NoRestart) or stop.cause is not None:
            break
        put_aside(box, start.number)
        start = following.start
        peers.begin(start.number)
        log.say(_how(start, job))
    peers.tell(is_over=True, stop_cause=stop.cause)
    # Before the outcome: once that is there, the box may be collected and destroyed.
    if peers.this_node.is_host:
        push_last(box, job, stop)
    log.drain(within_s=DRAIN_S)
    outcome = _outcome(conclude(box, job, watched, diagnosis, history, before), following, stop, log)
    return replace(outcome, ended_at=time.time())


def _keep_native_stacks(box: Path, watched: Watched, stop: StopRequest, log: MergedLog) -> None:
    """Keep the stacks of ranks that crashed; after a stop there is no time for it."""
    ranks = {process.rank for process in watched.processes}
    but = ranks if stop.cause is not None else watched.killed
    deleted = keep_native_stacks(
        box,
        watched.processes,
        since=watched.started_at,
        but=but,
        is_stopping=lambda: stop.cause is not None,
    )
    if deleted:
        log.say(f"core files deleted: {deleted}; what they said of a rank's crash is in stacks/")


def _note_files(box: Path, job: Job, log: MergedLog) -> None:
    try:
        note_files(box, job)
    except OSError as error:
        log.say(f"WARNING: what the program writes will not be found, only outputs that are named: {error}")


def _all_exited_0(watched: Watched) -> bool:
    return bool(watched.processes) and all(process.exit_code == 0 for process in watched.processes)


def _after_pause(following: Restart | NoRestart, stop: StopRequest, peers: Peers) -> Restart | NoRestart:
    """Wait until the restart is due or somebody asks to stop; none is due once a node is gone."""
    if isinstance(following, NoRestart):
        return following
    until = time.monotonic() + following.after_s
    while True:
        peers.listen()
        stop.heard = peers.stop_cause
        peers.tell(stop_cause=stop.cause)
        if stop.cause is not None or peers.lost or time.monotonic() >= until:
            break
        time.sleep(_LOOK_EVERY_S)
    return NoRestart(why=unreachable(peers)) if peers.lost and stop.cause is None else following


def _how(start: Start, job: Job) -> str:
    fewer = f" of {job.ranks}" if start.world_size < job.ranks else ""
    cap = "" if start.micro_batch is None else f", at most {start.micro_batch} windows at once on each"
    each = f" on each of {job.nodes} nodes" if job.nodes > 1 else ""
    return f"starting again (restart {start.number}) on {start.world_size}{fewer} rank(s){each}{cap}"


def _outcome(last: Outcome, following: Restart | NoRestart, stop: StopRequest, log: MergedLog) -> Outcome:
    """Say what became of the training when nothing follows its last start."""
    if isinstance(following, Restart):
        stopped = stopped_between(last, stop.cause or "stopped")
        log.say(f"stopped: {stopped.detail}")
        return stopped
    if last.reason not in ("finished", "stopped"):
        log.say(f"not started again: {following.why}")
    return last


def start_record_of(box: Path, watched: Watched, diagnosis: Diagnosis) -> StartRecord:
    """Return what is remembered of a start of the ranks when another has followed."""
    return StartRecord(
        reason=diagnosis.reason,
        detail=diagnosis.detail,
        world_size=watched.world_size,
        micro_batch=_number(box / layout.PLAN, "micro_batch"),
        steps_done=_steps_done(box, diagnosis),
        checkpoint=_number(box / layout.CHECKPOINTS / "latest.json", "step"),
        first_failure=diagnosis.first_failure,
        started_at=watched.started_at,
        ended_at=time.time(),
    )


def conclude(
    box: Path,
    job: Job,
    watched: Watched,
    diagnosis: Diagnosis,
    starts: Sequence[StartRecord] = (),
    before: Mapping[Path, Stamp] = NOTHING,
) -> Outcome:
    """Gather the evidence of a training that is over.

    The last of `starts` is the one that was watched; `before` are files that were there at the start.
    """
    final = read_final(box)
    loss = final.loss if final else last_loss(box)
    return Outcome(
        kind="train" if job.train else "command",
        reason=diagnosis.reason,
        detail=diagnosis.detail,
        started_at=starts[0].started_at if starts else watched.started_at,
        ended_at=time.time(),
        world_size=watched.world_size,
        ranks=(*diagnosis.ranks, *(dated.end for dated in watched.departed)),
        first_failure=diagnosis.first_failure,
        hang=watched.hang,
        stop_cause=watched.stop_cause,
        stop_sent_at=diagnosis.stop_sent_at,
        stop_sent_step=None if diagnosis.stop_sent_at is None else watched.stopped_at_step,
        final_record=final is not None,
        steps_done=_steps_done(box, diagnosis),
        steps_planned=job.train.steps if job.train else None,
        last_loss=loss.value,
        loss_finite=loss.finite,
        checkpoint=read_checkpoint(box),
        scores=final.scores if final else None,
        wandb=read_wandb(box),
        # What a program proves lies on the first node.
        checks=run_checks(job.success if watched.this_node.is_host else None, box, diagnosis.ranks, before),
        starts=tuple(starts),
    )


def stopped_between(outcome: Outcome, stop_cause: str) -> Outcome:
    """Return the outcome when somebody asked to stop before the ranks were started again."""
    detail = f"{stopped_by(stop_cause)} before the ranks were restarted, after: {outcome.detail}"
    return replace(outcome, reason="stopped", stop_cause=stop_cause, detail=detail)


def nothing_started(error: BaseException, job: Job | None, started_at: float) -> Outcome:
    """Return the evidence when the supervisor itself could not do its work."""
    alone = isinstance(error, PeersError)
    why: Reason = "communication" if alone else "error"
    return Outcome(
        kind="train" if job and job.train else "command",
        reason="stopped" if isinstance(error, TooLateError) else why,
        detail=str(error) if alone else f"the supervisor failed: {type(error).__name__}: {error}",
        started_at=started_at,
        ended_at=time.time(),
        world_size=job.ranks if job else 0,
        ranks=(),
    )


def _steps_done(box: Path, diagnosis: Diagnosis) -> int:
    final = read_final(box)
    return min([rank.step for rank in diagnosis.ranks] + ([final.step] if final else []))


def _number(path: Path, key: str) -> int | None:
    """Read a whole number from a JSON file, if it is there."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        value = json.loads(path.read_text(encoding="utf-8"))[key]
        return value if isinstance(value, int) else None
    return None


if __name__ == "__main__":
    sys.exit(main())
