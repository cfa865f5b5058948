"""Run assessment: the cause and the proofs of a run, by its evidence. Pure; a success needs every proof."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vastrun.contract.data_files import EXIT_OF_BLAME, Blame
from vastrun.contract.outcome import REASONS, Outcome, RankEnd
from vastrun.contract.program_kind import Proof
from vastrun.launcher.config import program_of
from vastrun.launcher.core import Cause, Evidence, StepEnd
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.left_out import left_out_text
from vastrun.launcher.core.verdict import RunAssessment

STOP_CAUSES: Mapping[str, Cause] = {
    "stopped": Cause.STOPPED,
    "pruned": Cause.PRUNED,
    "time_limit": Cause.TIME_LIMIT,
    "money_limit": Cause.MONEY_LIMIT,
    "preempted": Cause.PREEMPTED,
}

DOWNLOAD_STEP = "38-download"
CAUSE_OF_BLAME: Mapping[Blame, Cause] = {
    "job": Cause.USER_ERROR,
    "server": Cause.DATA,
    "disk": Cause.DISK,
    "host": Cause.HOST,
}
"""Cause of a failed download of the job's `data:`, by who is to blame."""
_CAUSE_OF_DOWNLOAD_EXIT = {code: CAUSE_OF_BLAME[blame] for blame, code in EXIT_OF_BLAME.items()}

CAUSE_OF_STEP: Mapping[str, Cause] = {  # and those of the program's own steps
    "00-environment": Cause.SETUP,
    "10-check-gpu": Cause.HOST,
    "20-check-comm": Cause.HOST,
    "22-check-nodes": Cause.COMMUNICATION,
    "25-packages": Cause.HOST,
    "30-unpack": Cause.SETUP,
    DOWNLOAD_STEP: Cause.DATA,
    "45-fetch": Cause.DATA,
}

_SIGNALS = {128 + number: number.name for number in signal.Signals}
"""Exit codes with which a shell reports a program that was killed."""
_UNFIT_IMAGE = 78
"""Exit code of an image that would fail on any machine."""
KILLED = 137
"""Exit code that the lease writes for a run whose `run.sh` was killed."""


def assess_run(evidence: Evidence, spec: JobSpec, node: int = 0) -> RunAssessment:
    """Return the cause and the proofs of a run. No cause means that every proof available so far holds.

    `node`: the node of the evidence. The training's own proofs are on node 0.
    """
    outcome = evidence.outcome
    if outcome is None:
        return _without_outcome(evidence, spec)
    proofs = tuple(_proofs(outcome, evidence, spec, node))
    cause = cause_of(outcome)
    if cause is not None:
        # A box reports ranks, not nodes.
        rank = outcome.first_failure or outcome.hang
        blamed = (
            None if rank is None or not 0 <= rank.rank < spec.world_size else rank.rank // spec.ranks_per_node
        )
        return RunAssessment(cause=cause, detail=outcome.detail, proofs=proofs, node=blamed)
    assessment = _of_proofs(proofs)
    if assessment.cause is not None and spec.command is not None and outcome.stop_sent_at is not None:
        return replace(
            assessment, cause=_stop_cause(outcome), detail=f"{_stop_text(outcome, spec)}; {outcome.detail}"
        )
    return assessment


def cause_of(outcome: Outcome) -> Cause | None:
    """Return the cause that the box reports; None: the training finished."""
    cause = REASONS[outcome.reason].cause
    if outcome.reason == "stopped":  # by whom, the stop file says
        return _stop_cause(outcome)
    return None if cause is None else Cause(cause)


def _stop_cause(outcome: Outcome) -> Cause:
    return STOP_CAUSES.get(outcome.stop_cause or "", Cause.STOPPED)


def _without_outcome(evidence: Evidence, spec: JobSpec) -> RunAssessment:
    # The step that failed says more than the exit code of the run, which is the step's own.
    failed = next((end for end in evidence.steps if end.exit_code != 0), None)
    if evidence.nonsense:
        cause, detail = Cause.HOST, f"the machine sent invalid evidence: {evidence.nonsense}"
    elif failed is not None:
        cause, detail = _of_step(failed, spec)
    elif evidence.exit_code == KILLED:
        cause, detail = Cause.HOST, "the run on the machine was killed by something else"
    else:
        cause, detail = Cause.UNPROVEN, "no evidence of what happened"
    missing = Proof(name="outcome", holds=None, text="the machine wrote no outcome.json")
    return RunAssessment(cause=cause, detail=detail, proofs=(missing,))


def _of_step(end: StepEnd, spec: JobSpec) -> tuple[Cause, str]:
    """Return the cause of a step that failed, and the detail."""
    name, code = end.step, end.exit_code
    if end.stop in STOP_CAUSES:
        return STOP_CAUSES[end.stop], f"stopped in {name}"
    causes = {**{step.name: Cause(step.cause) for step in program_of(spec).prepare}, **CAUSE_OF_STEP}
    cause = Cause.SETUP if code == _UNFIT_IMAGE else causes.get(name)
    if name == DOWNLOAD_STEP:
        cause = _CAUSE_OF_DOWNLOAD_EXIT.get(code, cause)
    killed_by = _SIGNALS.get(code)
    if cause is None and killed_by:
        return Cause.SIGNAL, f"{name} was killed by {killed_by} and left no evidence"
    how = f": {end.last_line}" if end.last_line else f" with exit code {code}"
    return cause or Cause.INTERNAL, f"{name.partition('-')[2] or name} failed{how}"


def _of_proofs(proofs: tuple[Proof, ...]) -> RunAssessment:
    """Assess a training that reports success, by its proofs."""
    broken = [p for p in proofs if p.holds is False]
    cause, detail = None, ""
    # The job's own conditions come first: one that is not met says nothing of the box's honesty.
    if unmet := [p.text for p in broken if p.name.startswith("success")]:
        cause, detail = Cause.USER_ERROR, f"a success condition of the job is not met: {'; '.join(unmet)}"
    elif broken:
        texts = "; ".join(p.text for p in broken)
        cause, detail = Cause.CONTRADICTION, f"it reports success, but {texts}"
    # A proof that could not be checked is not held against the run, but it proves nothing either.
    elif missing := [p.name for p in proofs if p.holds is None]:
        cause, detail = Cause.UNPROVEN, f"missing proof: {', '.join(missing)}"
    return RunAssessment(cause=cause, detail=detail, proofs=proofs)


def _proofs(outcome: Outcome, evidence: Evidence, spec: JobSpec, node: int) -> list[Proof]:
    proofs = [_held(outcome)] if spec.hold is not None else [_ranks(outcome, spec)]
    code = evidence.exit_code
    text = "the run left no exit code" if code is None else f"the exit code of the run is {code}"
    proofs += [Proof(name="exit", holds=None if code is None else code == 0, text=text)]
    if outcome.stop_sent_at is not None:
        # A stop came too late to matter if all requested steps were done.
        finished = cause_of(outcome) is None
        if spec.command is not None:
            requested = spec.success.steps if spec.success is not None else None
            finished = finished and requested is not None and (outcome.stop_sent_step or 0) >= requested
        proofs += [Proof(name="stop", holds=finished, text=_stop_text(outcome, spec))]
    # A start that finished one of several stages did not fail.
    failed_starts = [record for record in outcome.starts[:-1] if record.reason != "finished"]
    if failed_starts:
        times = "once" if len(failed_starts) == 1 else f"{len(failed_starts)} times"
        text = "; ".join(record.detail for record in failed_starts)
        proofs += [
            Proof(name="restarts", holds=True, text=f"the ranks were restarted {times}, after: {text}")
        ]
    if node == 0:
        proofs += _proofs_of_training(outcome, spec)
    if evidence.lost_metrics and spec.command is not None:
        text = f"WARNING: not a finite number at the end: {', '.join(evidence.lost_metrics[:3])}"
        proofs += [Proof(name="metrics", holds=True, text=text)]
    if evidence.damaged is not None:
        proofs += [_outputs(evidence.damaged, left_out_text(evidence.left_out))]
    return proofs


def _proofs_of_training(outcome: Outcome, spec: JobSpec) -> list[Proof]:
    proofs = [*program_of(spec).proofs(outcome), *_snapshots(outcome, spec)]
    if outcome.printed_errors:
        text = f"WARNING: {'; '.join(outcome.printed_errors[:3])}"
        proofs += [Proof(name="errors", holds=True, text=text)]
    if outcome.nested_ranks:
        proofs += [Proof(name="launcher", holds=True, text=f"WARNING: {outcome.nested_ranks}")]
    proofs += [Proof(name=f"success.{c.name}", holds=c.holds, text=c.text) for c in outcome.checks]
    if spec.command is not None and not outcome.checks:
        proofs += [Proof(name="success", holds=None, text="no success condition was checked")]
    return proofs


def _snapshots(outcome: Outcome, spec: JobSpec) -> Iterator[Proof]:
    """Yield what is known of the state that a command left, and of the one with which it began."""
    if spec.command is None:
        return
    if outcome.restored is not None and (text := outcome.restored.text):
        yield Proof(name="continued", holds=True, text=text)
    if outcome.checkpoint is not None:
        intact = "is intact" if outcome.checkpoint.intact else "is damaged on the machine"
        disks = outcome.reading.file_systems if outcome.reading and outcome.printed_errors else ()
        full = ", ".join(disk.path for disk in disks if disk.full_at is not None)
        text = f"may lack what the program could not write: {full} was full" if full else intact
        yield Proof(name="snapshot", holds=not full, text=f"{outcome.checkpoint.path} {text}")
    elif spec.checkpoints.files is not None:
        text = f"no snapshot was taken, although checkpoints names {spec.checkpoints.files}"
        # What it was restored from is at home.
        is_home = outcome.restored is not None
        yield Proof(name="snapshot", holds=is_home, text=f"WARNING: {text}" if is_home else text)


def _ranks(outcome: Outcome, spec: JobSpec) -> Proof:
    good = sum(rank.exit_code == 0 for rank in outcome.ranks)
    text = f"{good} of {spec.world_size} ranks exited 0"
    failures = ", ".join(f"rank {r.rank} by {_how(r)}" for r in outcome.ranks if r.exit_code != 0)
    # Started again, it may have gone on with the GPUs that were left.
    expected = outcome.world_size if len(outcome.starts) > 1 else spec.world_size
    holds = good == expected == len(outcome.ranks)
    return Proof(name="ranks", holds=holds, text=f"{text}; ended: {failures}" if failures else text)


def _held(outcome: Outcome) -> Proof:
    """Return the proof of a held machine: why it ended."""
    if outcome.kind != "hold":
        return Proof(name="held", holds=None, text="the machine did not report that it was held")
    return Proof(name="held", holds=True, text=f"held until: {outcome.detail}")


def _how(rank: RankEnd) -> str:
    if rank.exit_code is None:
        return "an unknown cause"
    return rank.signal or f"exit code {rank.exit_code}"


def _stop_text(outcome: Outcome, spec: JobSpec) -> str:
    """Describe when the program was asked to stop, why, and at which step."""
    after_s = max(0.0, (outcome.stop_sent_at or 0.0) - outcome.started_at)
    text = f"SIGTERM was sent {after_s:.0f} s after the start ({_stop_cause(outcome).replace('_', ' ')})"
    requested = outcome.steps_planned or (spec.success.steps if spec.success is not None else None)
    if outcome.stop_sent_step is None or not (requested or outcome.stop_sent_step):
        return text
    return f"{text}, at step {outcome.stop_sent_step}" + (f" of {requested}" if requested else "")


def _outputs(damaged: tuple[str, ...], left_out: str) -> Proof:
    warning = f"; {left_out}" if left_out else ""
    if damaged:
        text = f"missing or damaged after the download: {', '.join(damaged[:3])}{warning}"
        return Proof(name="outputs", holds=None, text=text)
    text = "outputs downloaded, checksums match"
    is_short = left_out.startswith("WARNING")
    return Proof(name="outputs", holds=True, text=f"{'' if is_short else 'all '}{text}{warning}")
