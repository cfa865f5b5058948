"""What Slurm's words mean: why a job waits, how it ended, why none was made."""

from __future__ import annotations

from collections.abc import Mapping

from vastrun.launcher.core import Cause, MachineEnd
from vastrun.launcher.core.errors import (
    NoOfferError,
    ProviderError,
    UncertainError,
    UnreachableError,
    VastrunError,
)
from vastrun.launcher.gate.slurm import SlurmJob, summarize_errors

_WAITS: Mapping[str, str] = {
    "Resources": "the nodes are busy",
    "Priority": "other jobs come first",
    "Dependency": "another job has to end first",
    "BeginTime": "its time has not come",
    "JobHeldUser": "it is held: scontrol release lets it go",
    "JobHeldAdmin": "the site holds it",
    "PartitionTimeLimit": "it asks for more time than its partition allows",
    "PartitionNodeLimit": "it asks for more nodes than its partition allows",
    "PartitionDown": "the partition is down",
    "PartitionInactive": "the partition is inactive",
    "ReqNodeNotAvail": "the nodes are down, drained or reserved",
    "NodeDown": "the node is down",
    "BadConstraints": "no node can ever fit it",
    "Reservation": "a reservation has the nodes",
    "Licenses": "it waits for a licence",
}
_LIMITS = ("QOS", "Assoc", "MaxJobs", "MaxGRES")
_ENDS: Mapping[str, tuple[Cause, str]] = {
    "TIMEOUT": (Cause.TIME_LIMIT, "reached its time limit"),
    "DEADLINE": (Cause.TIME_LIMIT, "reached its deadline"),
    "PREEMPTED": (Cause.PREEMPTED, "was preempted by another job"),
    "CANCELLED": (Cause.LOST, "was cancelled (scancel), and not by this launcher"),
    "NODE_FAIL": (Cause.LOST, "ended with its node, which failed or was set down"),
    "BOOT_FAIL": (Cause.HOST, "ended: its node did not boot"),
    "LAUNCH_FAILED": (Cause.HOST, "could not be started on its node"),
    "OUT_OF_MEMORY": (Cause.OUT_OF_MEMORY, "was killed: it used more memory than it may"),
    "FAILED": (Cause.HOST, "ended with an error of its batch script"),
    "REVOKED": (Cause.LOST, "was moved to another cluster"),
    "COMPLETED": (Cause.LOST, "ended by itself"),
}
_NOT_OFFERED = (
    *("node configuration is not available", "Node count specification", "Memory specification"),
    *("nvalid partition", "nvalid generic resource", "nvalid gres", "MaxGRES"),
    *("time limit is invalid", "partition is down"),
)
_NOT_ALLOWED = ("ccount", "QOS", "qos", "ssociation", "Access", "not permitted", "ermission", "policy")
_SILENT = ("Unable to contact", "timed out", "Connection refused", "communication", "try again", "Zero Bytes")
_NOT_THERE = ("command not found", "not found", "configuration source")
"""No commands, or commands that know no cluster."""


def why_it_waits(job: SlurmJob) -> str:
    """Say what the job waits for: Slurm's word, and what that means."""
    word = job.reason.partition(",")[0].partition(" ")[0]
    meaning = _WAITS.get(word, "a limit of the site" if word.startswith(_LIMITS) else "")
    if not job.reason:
        return "Slurm has not looked at it yet"
    return f"{job.reason}: {meaning}" if meaning else job.reason


def end_of(job: SlurmJob, down: tuple[str, int] | None = None) -> MachineEnd | None:
    """Return why the job ended; None while it has not, or does not say.

    `down`: the name and the number of the node that failed, where there are several and that is known.
    """
    if job.state not in _ENDS:
        return None
    cause, how = _ENDS[job.state]
    where = f" on {job.nodes}" if job.nodes else ""
    name, node = down or ("", None)
    how = how.replace("its node", f"its node {name}") if name else how
    return MachineEnd(cause=cause, text=f"Slurm's job {job.id}{where} {how}", node=node)


def question_error(printed: str) -> ProviderError:
    """Return why a question was not answered. Unable to tell is never an answer."""
    said = summarize_errors(printed)
    if any(word in said for word in _NOT_THERE) and not any(word in said for word in _SILENT):
        return missing(said)
    return UnreachableError(f"Slurm does not answer: {said or 'no reason given'}", cause=Cause.PROVIDER)


def order_error(printed: str) -> VastrunError:
    """Return why `sbatch` made no job, or may have made one."""
    said = summarize_errors(printed)
    if any(word in said for word in _SILENT):
        return UncertainError(f"Slurm did not answer: {said}")
    if any(word in said for word in _NOT_OFFERED):
        return NoOfferError(f"Slurm refused the job: {said}", hint="vastrun plan JOB.yaml --provider slurm")
    if any(word in said for word in _NOT_ALLOWED):
        hint = "name your account or QOS: vastrun config set slurm.sbatch '[--account=NAME]'"
        return ProviderError(f"Slurm refused the job: {said}", hint=hint, cause=Cause.USER_ERROR)
    if "command not found" in said:
        return missing(said)
    return ProviderError(f"Slurm refused the job: {said or 'no reason given'}")


def missing(said: str) -> ProviderError:
    """Return the error of a computer without Slurm's commands."""
    hint = "run vastrun on a login node, or name one: vastrun config set slurm.login USER@HOST"
    # The last of its words says why; those before tell of what was tried.
    why = said.rpartition("; ")[2]
    return ProviderError(f"no Slurm here: {why}", hint=hint)
