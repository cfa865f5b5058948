"""The end of a run in text: verdict, proofs, score, duration, cost, outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vastrun.contract.scores import score_lines
from vastrun.launcher.commands.queries import RunEnd, RunRow
from vastrun.launcher.core import Cause, Phase, Proof, Run, Verdict
from vastrun.launcher.decisions.advice import advice_for
from vastrun.launcher.decisions.nodes import current_machines
from vastrun.launcher.ui.render.amounts import duration, moment, rough, usd, usd_sum
from vastrun.launcher.ui.render.stages import stage_lines
from vastrun.launcher.ui.render.table import facts

_HOLDS = {True: "yes", False: "NO", None: "missing"}


def summary(ending: RunEnd, now: float) -> str:
    """Write the summary at the end of `launch`."""
    run, ends_at = ending.row.run, ending.lease_ends_at
    return facts(
        [
            ("run", f"{run.id} ({run.job})"),
            ("verdict" if run.phase is Phase.ENDED else "state", verdict_line(ending.row)),
            ("proofs", proof_lines(run.proofs)),
            ("stages", stage_lines(ending.stages, run.id)),
            ("score", "\n".join(part for line in score_lines(ending.scores) for part in line.split("; "))),
            ("duration", duration((run.ended_at or now) - run.created_at)),
            ("cost", _cost(ending)),
            ("lease", f"ends the machine at {moment(ends_at)}" if ends_at else ""),
            ("outputs", run.out_dir),
            ("report", f"vastrun report {run.id} --open" if run.phase is Phase.ENDED else ""),
            (
                "next",
                ""
                if run.cause is None and run.phase is Phase.ENDED
                else advice_for(run, checkpoint=ending.checkpoint, not_shipped=ending.not_shipped),
            ),
        ]
    )


def verdict_line(row: RunRow) -> str:
    """Write one line like `FAILED: out of memory: rank 1 failed at step 4: …`."""
    weak = (
        " (by exit code only)" if row.verdict is Verdict.SUCCEEDED and _only_exit_code(row.run.proofs) else ""
    )
    return ": ".join(filter(None, (state_of(row) + weak, cause_line(row.run))))


def _only_exit_code(proofs: Sequence[Proof]) -> bool:
    """Return whether the only evidence of success is the exit code of the program."""
    return {proof.name for proof in proofs if proof.name.startswith("success")} == {"success.exit_code"}


def state_of(row: RunRow) -> str:
    """Return the verdict, or the state of an open run."""
    if row.verdict is not None:
        return row.verdict.value
    if row.run.phase is Phase.DESTROY and row.run.destroy_tries:
        return "not destroyed"
    if row.driver is not None:
        return row.run.phase.value
    if row.lease is not None:
        return f"{row.run.phase.value} (left to its lease)"
    if row.download_left_s is not None:
        return f"training ended, waiting for download, {rough(row.download_left_s)} left"
    return f"{row.run.phase.value} ({'detached' if row.run.phase is Phase.TRAIN else 'no launcher'})"


def lease_line(row: RunRow, now: float) -> str:
    """Write the end and the remaining cost of an unreachable machine's lease; empty if there is none."""
    if row.lease is None:
        return ""
    machines = ", ".join(one.instance_id for one in row.machines if one.instance_id and not one.released_at)
    if row.lease.ends_at <= now:
        return f"ended machine {machines} by {moment(row.lease.ends_at)}, unless it failed"
    return (
        f"ends machine {machines} at {moment(row.lease.ends_at)} at the latest, "
        f"for at most {usd(row.lease.usd)} more"
    )


def left_text(row: RunRow, now: float) -> str:
    """Write the lease as a line for a list of runs, with the command that destroys the machine."""
    run = row.run
    return f"{run.id}: the key was rejected; its lease {lease_line(row, now)}: vastrun resume {run.id}"


def proof_lines(proofs: Sequence[Proof]) -> str:
    """Write a line for each proof, with whether it holds."""
    width = max((len(proof.name) for proof in proofs), default=0)
    return "\n".join(f"{_HOLDS[proof.holds]:<7}  {proof.name:<{width}}  {proof.text}" for proof in proofs)


def on_machines(row: RunRow) -> str:
    """Write the number of machines of a run on several nodes; else nothing."""
    return f" on {len(current_machines(row.machines))} machines" if row.nodes else ""


def _cost(ending: RunEnd) -> str:
    row = ending.row
    own = f"{usd(row.usd)} at {usd(row.usd_per_hour)}/h{on_machines(row)}"
    if len(ending.attempts) < 2:
        return own
    return f"{own}; {usd_sum(a.usd for a in ending.attempts)} for all {len(ending.attempts)} attempts"


WORDS: Mapping[Cause, str] = {
    Cause.USER_ERROR: "",
    Cause.SETUP: "set-up failed",
    Cause.OUT_OF_MEMORY: "out of memory",
    Cause.SIGNAL: "a process was killed",
    Cause.COMMUNICATION: "the ranks could not communicate",
    Cause.DATA: "the data set is faulty",
    Cause.DIVERGED: "the training diverged",
    Cause.GATE_MISSED: "",
    Cause.DISK: "the machine's disk is full",
    Cause.HOST: "the machine is faulty",
    Cause.SLOW: "the machine is slow",
    Cause.STORAGE: "this computer could not write",
    Cause.HANG: "",
    Cause.STOPPED: "",
    Cause.PRUNED: "",
    Cause.TIME_LIMIT: "time limit",
    Cause.MONEY_LIMIT: "money limit",
    Cause.PREEMPTED: "",
    Cause.LOST: "",
    Cause.NO_OFFER: "",
    Cause.PROVIDER: "the provider failed",
    Cause.UNPROVEN: "success is not proven",
    Cause.CONTRADICTION: "the evidence contradicts itself",
    Cause.INTERNAL: "a bug in vastrun",
}
"""Words before the detail of a cause; empty if the verdict and the detail suffice."""


def cause_line(run: Run) -> str:
    """Write the cause of a run's end: `out of memory: rank 1 failed at step 4: …`. Empty for a success."""
    words = "" if run.cause is None else WORDS[run.cause]
    return ": ".join(filter(None, (words, run.detail)))
