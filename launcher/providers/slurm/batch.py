"""Job of Slurm: options and script for `sbatch`, which runs the lease, and why a job ended."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vastrun.launcher.core import LABEL_PREFIX, Cause, MachineEnd, RentalOrder, errors
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate.slurm import SlurmJob, summarize_errors
from vastrun.launcher.providers.slurm.offers import NodeShare

SIGNAL_S = 90
"""Seconds between SIGTERM and the end of a job."""
_WAIT_REASONS: Mapping[str, str] = {
    "Resources": "the nodes are busy",
    "Priority": "other jobs come first",
    "Dependency": "another job has to end first",
    "JobHeldUser": "it is held: scontrol release starts it",
    "JobHeldAdmin": "the site holds it",
    "PartitionDown": "the partition is down",
    "ReqNodeNotAvail": "the nodes are down, drained or reserved",
}
_LIMITS = ("QOS", "Assoc", "MaxJobs", "MaxGRES")
_END_STATES: Mapping[str, tuple[Cause, str]] = {
    "TIMEOUT": (Cause.TIME_LIMIT, "reached its time limit"),
    "DEADLINE": (Cause.TIME_LIMIT, "reached its deadline"),
    "PREEMPTED": (Cause.PREEMPTED, "was preempted by another job"),
    "CANCELLED": (Cause.LOST, "was cancelled (scancel), but not by this launcher"),
    "NODE_FAIL": (Cause.LOST, "ended with its node, which failed or was set down"),
    "BOOT_FAIL": (Cause.HOST, "ended: its node did not boot"),
    "LAUNCH_FAILED": (Cause.HOST, "could not be started on its node"),
    "OUT_OF_MEMORY": (Cause.OUT_OF_MEMORY, "was killed: it exceeded its memory limit"),
    "FAILED": (Cause.HOST, "ended with an error of its batch script"),
    "REVOKED": (Cause.LOST, "was moved to another cluster"),
    # Its script ends by itself only when it is told to, or when its boxes are gone.
    "COMPLETED": (Cause.PREEMPTED, "received SIGTERM before its time limit"),
}
REJECTED_HINT = (
    "vastrun config set slurm.sbatch '[--account=NAME]' names your account, and `sinfo` lists the partitions"
)
_NO_RESPONSE = (
    *("Unable to contact", "timed out", "Connection refused", "communication", "try again", "Zero Bytes"),
)
_NOT_INSTALLED = ("command not found", "not found", "configuration source")
"""Messages when Slurm's commands are missing or not configured."""


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """Order for one job."""

    ids: tuple[str, ...]
    """Ids of its instances, by node; the first one gives the job its name."""
    order: RentalOrder
    share: NodeShare
    folder: str
    """Absolute path of the boxes' folder on the shared disk."""
    python: str
    settings: SlurmSettings


def sbatch_options(batch: JobOrder) -> Sequence[str]:
    """Return the options of `sbatch`. The user's options come last, since the last of two counts."""
    return (
        "--parsable",
        f"--comment={batch.order.label}",
        f"--job-name={LABEL_PREFIX}{batch.ids[0]}",
        f"--signal=B:TERM@{SIGNAL_S}",
        # A requeued job would find the box of its previous start.
        "--no-requeue",
        "--output=/dev/null",
        *batch.share.options(len(batch.ids)),
        *batch.settings.sbatch,
    )


def batch_script(batch: JobOrder) -> str:
    """Return the batch script, without secrets: other users may read it with scontrol."""
    variables = {"VASTRUN_PYTHON": batch.python, "VASTRUN_TERM": "preempted"}
    environment = [f"{name}={value}" for name, value in {**batch.order.env, **variables}.items()]
    lines = (
        "#!/bin/bash",
        f"folder={shlex.quote(batch.folder)}",
        f"instances=({shlex.join(batch.ids)})",
        f"labels=({shlex.join(batch.order.nodes or (batch.order.label,))})",
        f"cores={batch.share.cores}",
        f"seconds={batch.share.minutes * 60}",
        f"environment=({shlex.join(environment)})",
        f"around=({shlex.join(_container_command(batch))})",
        f"lease={shlex.quote(batch.order.onstart)}",
        f"server={shlex.quote(script('server'))}",
        "prepare() {",
        "  :",
        *batch.settings.setup,
        "}",
        script("job"),
    )
    return "\n".join(lines)


def ask_argv(accept_s: float, limit_s: float, command: str) -> Sequence[str]:
    """Return the argv that asks a box's job to run a command; run it in the box's folder.

    `accept_s`: seconds for the job to accept the command. `limit_s`: seconds for the command.
    """
    return ("bash", "--norc", "-c", script("ask"), "ask", f"{accept_s:.0f}", f"{limit_s:.3f}", command)


def _container_command(batch: JobOrder) -> Sequence[str]:
    """Return the command prefix that runs a program in the job's container; empty without one."""
    image, folder = batch.order.image, batch.folder
    if batch.settings.container is None or image is None:
        return ()
    if batch.settings.container == "pyxis":
        step = ("srun", "--overlap", "--ntasks=1", f"--container-image={image}")
        return (*step, f"--container-mounts={folder}:{folder}", "--no-container-mount-home")
    gpus = ("--nv",) if batch.share.gpus else ()
    where = image if image.startswith("/") or "://" in image else f"docker://{image}"
    return ("apptainer", "exec", *gpus, "--bind", f"{folder}:{folder}", where)


def script(name: str) -> str:
    """Return one of the provider's shell scripts."""
    return (Path(__file__).parent / "scripts" / f"{name}.sh").read_text(encoding="utf-8")


def wait_reason(job: SlurmJob) -> str:
    """Return why the job waits: Slurm's reason and its meaning."""
    word = job.reason.partition(",")[0].partition(" ")[0]
    meaning = _WAIT_REASONS.get(word, "a limit of the site" if word.startswith(_LIMITS) else "")
    if not job.reason:
        return "Slurm has not scheduled it yet"
    return f"{job.reason}: {meaning}" if meaning else job.reason


def end_of(job: SlurmJob, down: tuple[str, int] | None = None) -> MachineEnd | None:
    """Return why the job ended; None while it runs, or when its state does not say.

    `down`: name and index of the failed node of several, if known.
    """
    if job.state not in _END_STATES:
        return None
    cause, how = _END_STATES[job.state]
    where = f" on {job.nodes}" if job.nodes else ""
    name, node = down or ("", None)
    how = how.replace("its node", f"its node {name}") if name else how
    how += f" ({job.reason})" if job.reason else ""
    return MachineEnd(cause=cause, text=f"Slurm's job {job.id}{where} {how}", node=node)


def query_error(printed: str) -> errors.ProviderError:
    """Return the error of a failed query: a failure never counts as an empty list."""
    message = summarize_errors(printed)
    if any(word in message for word in _NOT_INSTALLED) and not any(word in message for word in _NO_RESPONSE):
        hint = "run vastrun on a login node, or name one: vastrun config set slurm.login USER@HOST"
        # The last part is the reason; the parts before it are attempts.
        return errors.ProviderError(f"no Slurm here: {message.rpartition('; ')[2]}", hint=hint)
    return errors.UnreachableError(
        f"Slurm does not answer: {message or 'no reason given'}", cause=Cause.PROVIDER
    )


def order_error(printed: str) -> errors.VastrunError:
    """Return the error of a failed `sbatch`; UncertainError when the job may exist."""
    message = summarize_errors(printed)
    if any(word in message for word in _NO_RESPONSE):
        return errors.UncertainError(f"Slurm did not answer: {message}")
    return errors.NoOfferError(f"Slurm rejected the job: {message or 'no reason given'}", hint=REJECTED_HINT)
