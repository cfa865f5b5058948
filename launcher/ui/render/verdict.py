"""State of a run in text: its verdict, cause, proofs, stages and lease."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vastrun.contract.texts import how_many
from vastrun.launcher.commands.queries import RunRow
from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Cause, MachineState, Phase, Proof, Run, Verdict
from vastrun.launcher.core.runs import CodeRecord
from vastrun.launcher.decisions.job_shape import StageCost
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ui.render.amounts import duration, moment, rough, usd

_HOLDS = {True: "yes", False: "NO", None: "missing"}


def verdict_line(row: RunRow) -> str:
    """Write one line like `FAILED: out of memory: rank 1 failed at step 4: …`."""
    names = {proof.name for proof in row.run.proofs if proof.name.startswith("success")}
    by_exit_code = row.verdict is Verdict.SUCCEEDED and names == {"success.exit_code"}
    weak = " (by exit code only)" if by_exit_code else ""
    return ": ".join(filter(None, (state_of(row) + weak, cause_line(row.run))))


SILENCE: Mapping[MachineState, str] = {
    MachineState.NOT_ANSWERING: "not answering",
    MachineState.NOT_LISTED: "gone by the list",
    MachineState.GONE: "gone for certain",
}


def silence_text(row: RunRow) -> str:
    """Write what is known of a machine that does not answer, and since when; empty where it answers."""
    if row.machine_state is None:
        return ""
    meter, is_silent = row.run.meter, row.machine_state is MachineState.NOT_ANSWERING
    at = meter.answered_at if is_silent else row.run.released_at or meter.absent_at
    when = "" if at is None else f"{', last answer' if is_silent else ' since'} {moment(at)}"
    return f"{SILENCE[row.machine_state]}{when}"


def state_of(row: RunRow) -> str:
    """Return the verdict, or the state of an open run."""
    if row.verdict is not None:
        return row.verdict.value
    if row.run.phase is Phase.DESTROY and row.run.destroy_tries:
        return "not destroyed"
    silence = "" if row.machine_state is None else SILENCE[row.machine_state]
    if row.driver is not None:
        return f"{row.run.phase.value}{silence and f' ({silence})'}"
    if row.lease is not None:
        return f"{row.run.phase.value} (left to its lease)"
    if row.download_left_s is not None:
        return f"training ended, waiting for download, {rough(row.download_left_s)} left"
    absent = "detached" if row.run.phase is Phase.TRAIN else "no launcher"
    return f"{row.run.phase.value} ({silence or absent})"


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


def cost_text(row: RunRow, rate: str = "") -> str:
    """Write `$0.31`, or `$0.31, at most $0.34 until the bill is in` once a run has ended.

    `rate`: added to the amount, such as ` at $0.21/h`.
    """
    spent, upper = usd(row.usd), usd(row.at_most_usd)
    is_open = row.verdict is None or row.at_most_usd <= row.usd or spent == upper
    return f"{spent}{rate}" if is_open else f"{spent}{rate}, at most {upper} until the bill is in"


def on_machines(row: RunRow) -> str:
    """Write the number of machines of a run on several nodes; else nothing."""
    return f" on {len(row.machines)} machines" if row.nodes else ""


WORDS: Mapping[Cause, str] = {
    **dict.fromkeys(Cause, ""),
    Cause.SETUP: "set-up failed",
    Cause.OUT_OF_MEMORY: "out of memory",
    Cause.SIGNAL: "a process was killed",
    Cause.COMMUNICATION: "the ranks could not communicate",
    Cause.DATA: "the data set is faulty",
    Cause.DIVERGED: "the training diverged",
    Cause.DISK: "the machine's disk is full",
    Cause.HOST: "the machine is faulty",
    Cause.SLOW: "the machine is slow",
    Cause.STORAGE: "this computer could not write",
    Cause.TIME_LIMIT: "time limit",
    Cause.MONEY_LIMIT: "money limit",
    Cause.PROVIDER: "the provider failed",
    Cause.UNPROVEN: "success is not proven",
    Cause.CONTRADICTION: "the evidence contradicts itself",
    Cause.INTERNAL: "a bug in vastrun",
}
"""Words before the detail of a cause; empty if the verdict and the detail suffice."""


def cause_line(run: Run) -> str:
    """Write the cause of a run's end: `out of memory: rank 1 failed at step 4: …`. Empty for a success."""
    return ": ".join(filter(None, ("" if run.cause is None else WORDS[run.cause], run.detail)))


def stage_lines(stages: Sequence[StageCost], run: Run) -> str:
    """Write a line for each stage of a run; empty where it has only one."""
    width = max((len(stage.name) for stage in stages), default=0)
    return "\n".join(f"{stage.name:<{width}}  {_words(stage, run)}" for stage in stages)


def _words(stage: StageCost, run: Run) -> str:
    parts = [
        f"{stage.steps_done} of {stage.steps_planned} steps",
        f"{duration(stage.seconds)}, {usd(stage.usd)}" if stage.seconds else "",
        stage_result(stage, run),
    ]
    return "  ".join(filter(None, parts))


def stage_result(stage: StageCost, run: Run) -> str:
    """Write how a stage of a run ended, and its score; empty: it did not come to its end."""
    scores = program_of(read_job(run.spec_json)).score_lines(stage.scores) if stage.scores else []
    parts = [
        f"done by {stage.run_id}" if stage.run_id not in (None, run.id) else "",
        "MISSED its gate" if stage.missed else "",
        # Of several tasks the first: the rest is in the report.
        next((line.partition("; ")[0] for line in scores), ""),
    ]
    return "  ".join(filter(None, parts))


def code_text(code: CodeRecord | None) -> str:
    """Write where the code of a run came from."""
    if code is None:
        return ""
    origin, files = code.origin, f"{how_many(len(code.files), 'file')}, digest {code.digest[:12]}"
    if origin.commit is None:
        return files
    where = "".join(
        [f" on {origin.branch}" if origin.branch else "", f" of {origin.remote}" if origin.remote else ""]
    )
    changes = ", with changes that were not committed" if origin.dirty else ""
    return one_line(f"commit {origin.commit[:12]}{where}{changes}; {files}")
