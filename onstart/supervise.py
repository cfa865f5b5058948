"""Supervisor: starts the ranks, watches them, restarts them if that can help, and writes the evidence.

`python -m vastrun.onstart.supervise`, with the box's folder in VASTRUN_BOX. `docs/box.md` has its exit codes.
Standard library only.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from vastrun.contract import layout
from vastrun.contract.job import Job
from vastrun.contract.outcome import REASONS, Outcome, RestoredSnapshot, StartRecord
from vastrun.contract.records import write_atomically
from vastrun.contract.texts import how_many
from vastrun.onstart.nodes import this_node_of, torchrun_line
from vastrun.onstart.optional_files import number_in
from vastrun.onstart.supervision import evidence
from vastrun.onstart.supervision.diagnosis import Diagnosis, ObservedLaunch, diagnose
from vastrun.onstart.supervision.environment import lowers_debug
from vastrun.onstart.supervision.launch import Agents, archive_start, first_start
from vastrun.onstart.supervision.logged_curves import LoggedCurves
from vastrun.onstart.supervision.native_stack import keep_native_stacks
from vastrun.onstart.supervision.peers import Peers, PeersError
from vastrun.onstart.supervision.processes import adopt_orphans, kill_descendants
from vastrun.onstart.supervision.program_files import note_files
from vastrun.onstart.supervision.progress import last_loss, logged_step
from vastrun.onstart.supervision.ranklogs import MergedLog
from vastrun.onstart.supervision.reading import FULL_BYTES
from vastrun.onstart.supervision.restart_decision import agree_on_restart, unreachable_text
from vastrun.onstart.supervision.restarts import Start
from vastrun.onstart.supervision.snapshot_restore import ProgramSnapshots
from vastrun.onstart.supervision.stop import StopRequest, stop_text
from vastrun.onstart.supervision.watch import DRAIN_S, StartRanks, push_last, run_ranks

_KILL_S = 5.0


def main(begin: StartRanks | None = None) -> int:
    """Supervise the job of this box; every path writes the outcome. `begin` starts the ranks."""
    box, agents = Path(os.environ["VASTRUN_BOX"]).resolve(), Agents()
    adopt_orphans()
    agents.wait_for_start_signal(box)
    started_at, job = time.time(), None
    stop = StopRequest.listen(box / layout.STOP)
    # Space on a full disk: the file is deleted before the outcome is written.
    reserve = box / layout.RUN / ".reserve"
    reserve.parent.mkdir(parents=True, exist_ok=True)
    reserve.write_bytes(bytes(FULL_BYTES))
    try:
        job = Job.read(box)
        this_node = this_node_of(job.nodes, os.environ)
        with Peers(this_node=this_node, run_id=job.run_id) as peers:
            outcome = _supervise(box, job, stop, begin or agents.begin, peers)
    except BaseException as error:
        is_alone = isinstance(error, PeersError)
        outcome = Outcome(
            kind=job.program.kind if job else "command",
            reason="communication" if is_alone else "error",
            detail=str(error) if is_alone else f"the supervisor failed: {type(error).__name__}: {error}",
            started_at=started_at,
            ended_at=time.time(),
            world_size=job.ranks if job else 0,
            ranks=(),
        )
        raise
    finally:
        kill_descendants(within_s=_KILL_S)
        reserve.unlink(missing_ok=True)
        write_atomically(box / layout.OUTCOME, outcome.to_json())
    exit_code = REASONS[outcome.reason].exit_code
    # The evidence comes first: a stop may not leave enough time for trackers.
    write_atomically(box / layout.OUTCOME, evidence.finish_wandb_run(box, job, outcome, exit_code).to_json())
    return exit_code


def _shown(command: str) -> str:
    """Return the first line of a script."""
    first, _, rest = command.partition("\n")
    return f"{first} …" if rest else first


def _supervise(box: Path, job: Job, stop: StopRequest, begin: StartRanks, peers: Peers) -> Outcome:
    """Start the ranks, and restart them until no restart follows."""
    log = MergedLog(path=box / layout.LOG)
    program = shlex.join(job.program.argv or (job.program.module,))
    log.say(f"starting {_shown(program)} on {how_many(job.ranks, 'rank')}")
    log.say(f"as {_shown(torchrun_line(job, peers.this_node))}")
    if lowers_debug(job, os.environ):
        log.say("TORCH_DISTRIBUTED_DEBUG=DETAIL becomes INFO: DETAIL makes DDP on gloo crash")
    # Existing files prove nothing about this training.
    before = evidence.stamp_files(job.success, box)
    start, history = first_start(box, job.ranks), list[StartRecord]()
    if not job.program.keeps_records and not start.number:
        try:
            note_files(box, job)
        except OSError as error:
            log.say(f"WARNING: only files that `outputs` names can be downloaded: {error}")
    peers.connect_all(within_s=job.start_s, is_cancelled=lambda: stop.cause is not None)
    snapshots = ProgramSnapshots(box=box, job=job, say=log.say)
    is_read = peers.this_node.is_host and not job.program.keeps_records
    curves = LoggedCurves(box=box, say=log.say, is_on=is_read)
    while True:
        start = replace(start, resume=snapshots.restore(start.number))
        with snapshots.watching(), curves.reading():
            observed = run_ranks(box, job, start, begin, stop, log, peers)
        if not job.program.keeps_records:
            _keep_native_stacks(box, observed, stop, log, peers)
        snapshots.final_poll(stop, [process.exit_code for process in observed.processes])
        diagnosis = evidence.with_gate(box, diagnose(box, observed))
        history.append(start_record_of(box, observed, diagnosis))
        log.say(f"{history[-1].reason}: {history[-1].detail}")
        decision = _wait_for_restart(agree_on_restart(job, history, start, peers), stop, peers)
        if isinstance(decision, str) or stop.cause is not None:
            break
        try:
            archive_start(box, start.number)
        except OSError as error:  # a full disk
            if history[-1].reason == "finished":  # a stage before the last
                raise
            decision = f"the files of this start cannot be moved: {error}"
            break
        start = decision
        peers.begin(start.number)
        log.say(_restart_line(start, job, history[-1]))
    peers.publish(is_over=True, stop_cause=stop.cause)
    # Before the outcome: once that exists, the box may be collected and destroyed.
    if peers.this_node.is_host:
        push_last(box, job, stop)
    log.drain(within_s=DRAIN_S)
    outcome = _outcome(conclude(box, job, observed, diagnosis, history, before), decision, stop, log)
    return replace(outcome, restored=_restored(box, snapshots, log), ended_at=time.time())


def _restored(box: Path, snapshots: ProgramSnapshots, log: MergedLog) -> RestoredSnapshot | None:
    """Return how a program that was restored began; a warning that it began anew is said."""
    if (step := snapshots.restored_step) is None:
        return None
    restored = RestoredSnapshot(
        step=step, first_step=evidence.first_reported_step(box), read=snapshots.read_file()
    )
    if restored.has_started_over:
        log.say(restored.text)
    return restored


def _keep_native_stacks(
    box: Path, observed: ObservedLaunch, stop: StopRequest, log: MergedLog, peers: Peers
) -> None:
    """Record the stacks of ranks that crashed; after a stop there is no time for it."""
    # Reading them takes longer than the silence after which the other nodes take this one for lost.
    deleted = peers.listen_while(
        lambda: keep_native_stacks(
            box,
            observed.processes if stop.cause is None else (),
            since=observed.started_at,
            exclude=observed.killed,
            is_stopping=lambda: (stop.cause or peers.stop_cause) is not None,
        )
    )
    if deleted:
        log.say(f"deleted {how_many(deleted, 'core file')}; the stacks of the crash are in stacks/")


def _wait_for_restart(decision: Start | str, stop: StopRequest, peers: Peers) -> Start | str:
    """Wait until the restart is due or a stop is requested; a lost node cancels the restart."""
    if isinstance(decision, str):
        return decision
    until = time.monotonic() + decision.after_s
    while True:
        peers.listen()
        stop.peer_cause = peers.stop_cause
        peers.publish(stop_cause=stop.cause)
        if stop.cause is not None or peers.lost or time.monotonic() >= until:
            break
        time.sleep(0.1)
    return unreachable_text(peers) if peers.lost and stop.cause is None else decision


def _restart_line(start: Start, job: Job, ended: StartRecord) -> str:
    if ended.reason == "finished":
        return f"stage {ended.stage} is over; start {start.number} of the ranks trains the next one"
    fewer = f"{start.world_size} of " if start.world_size < job.ranks else ""
    cap = "" if start.micro_batch is None else f", at most {start.micro_batch} windows at once on each"
    each = f" on each of {job.nodes} nodes" if job.nodes > 1 else ""
    return f"restart {start.number} on {fewer}{how_many(job.ranks, 'rank')}{each}{cap}"


def _outcome(last: Outcome, decision: Start | str, stop: StopRequest, log: MergedLog) -> Outcome:
    """Return the final outcome after the last start."""
    if isinstance(decision, Start):
        cause = stop.cause or "stopped"
        detail = f"{stop_text(cause)} before the ranks were restarted, after: {last.detail}"
        log.say(f"stopped: {detail}")
        return replace(last, reason="stopped", stop_cause=cause, detail=detail)
    if last.reason not in ("finished", "stopped"):
        log.say(f"no restart: {decision}")
    return last


def start_record_of(box: Path, observed: ObservedLaunch, diagnosis: Diagnosis) -> StartRecord:
    """Return the record of one start of the ranks."""
    final = evidence.read_final(box)
    step = min([rank.step for rank in diagnosis.ranks] + ([final.step] if final else []))
    has_beaten = any(rank.activity for rank in diagnosis.ranks)
    return StartRecord(
        reason=diagnosis.reason,
        detail=diagnosis.detail,
        world_size=observed.world_size,
        micro_batch=number_in(box / layout.PLAN, "micro_batch"),
        steps_done=step if has_beaten else max(step, logged_step(box)),
        checkpoint=number_in(box / layout.CHECKPOINTS / "latest.json", "step"),
        first_failure=diagnosis.first_failure,
        stage=evidence.stage_of(box),
        started_at=observed.started_at,
        ended_at=time.time(),
    )


def conclude(
    box: Path,
    job: Job,
    observed: ObservedLaunch,
    diagnosis: Diagnosis,
    starts: Sequence[StartRecord],
    before: Mapping[Path, evidence.Stamp],
) -> Outcome:
    """Collect the evidence of a training that is over.

    `before` are the files that existed before the program started.
    """
    final = evidence.read_final(box)
    loss = final.loss if final else last_loss(box)
    return Outcome(
        kind=job.program.kind,
        reason=diagnosis.reason,
        detail=diagnosis.detail,
        started_at=starts[0].started_at,
        ended_at=time.time(),
        world_size=observed.world_size,
        ranks=diagnosis.ranks,
        first_failure=diagnosis.first_failure,
        hang=observed.hang,
        idle_gpus=observed.idle_gpus,
        reading=observed.reading,
        packages=evidence.installed_packages(),
        printed_errors=evidence.printed_errors(box, job, diagnosis),
        nested_ranks=observed.nested_ranks,
        stop_cause=observed.stop_cause,
        stop_sent_at=diagnosis.stop_sent_at,
        stop_sent_step=None if diagnosis.stop_sent_at is None else observed.stopped_at_step,
        final_record=final is not None,
        steps_done=starts[-1].steps_done,
        steps_planned=job.program.total_steps or None,
        last_loss=loss.value,
        loss_finite=loss.finite,
        checkpoint=evidence.read_checkpoint(box),
        scores=final.scores if final else None,
        wandb=evidence.read_wandb(box),
        # The files that prove a success are on the first node.
        checks=evidence.run_checks(
            job.success if observed.this_node.is_host else None, box, diagnosis.ranks, before
        ),
        stages=evidence.stage_ends(box, job, starts),
        starts=tuple(starts),
    )


if __name__ == "__main__":
    exit_code = main()
    StopRequest.ignore()
    sys.exit(exit_code)
