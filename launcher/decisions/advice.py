"""Advice: what to try next, by cause."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from string import Formatter
from typing import TYPE_CHECKING

from vastrun.launcher.config import program_of, read_job
from vastrun.launcher.core import Cause, Phase, Run
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.decisions.holders import holder_of

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

AFTER_SUCCESS = "nothing to do"
_ANY_FILE = "JOB.yaml"
"""File name in the advice for a job that came from no file."""

ADVICE: Mapping[Cause, str] = {  # where the kind of the program has none of its own
    Cause.USER_ERROR: "fix the program or the job file, then: {edited}",
    Cause.SETUP: "read what the step that failed wrote: vastrun logs {run} --first-error",
    Cause.OUT_OF_MEMORY: "use a smaller batch, or ask for more with resources.gpu_memory_gb; then: {edited}",
    Cause.SIGNAL: "read the rank's last lines: vastrun logs {run} --first-error",
    Cause.COMMUNICATION: "NCCL_DEBUG: INFO in env: shows which rank failed first; or try another machine",
    Cause.DATA: "read which data it failed on: vastrun logs {run} --first-error",
    Cause.DIVERGED: "lower the learning rate; then: {edited}",
    Cause.GATE_MISSED: "train the stage for more steps, or lower its gate; then {resume}: {again}",
    Cause.DISK: "ask for more with resources.disk_gb, or keep fewer checkpoints",
    Cause.HOST: "launch again on another machine; `retry: {{host: 2}}` does this automatically",
    Cause.SLOW: "{resume}: {again}",
    Cause.STORAGE: "free some space, or choose another folder: vastrun launch{job_file}{where} --out DIR",
    Cause.HANG: "read the stacks; raise limits.stall_s only if the rank was slow, not stuck",
    Cause.STOPPED: "{resume}: {again}",
    Cause.PRUNED: "others of its batch do better; to finish it all the same, {resume}: {again}",
    Cause.TIME_LIMIT: "{resume} with more time: {again} --set limits.hours=... (or a later --by)",
    Cause.MONEY_LIMIT: "{resume} with more money: {again} --set limits.usd=...",
    Cause.PREEMPTED: "{resume} on another machine: {again}",
    Cause.LOST: "{resume} on another machine: {again}",
    Cause.OUTPUTS_LOST: "see what is here, then {resume}: {again}; limits.collect_s keeps outputs for longer",
    Cause.NO_OFFER: "relax the requirements that no offer meets: vastrun plan{job_file}{where}",
    Cause.PROVIDER: "see what the provider said: vastrun why {run}; then launch again",
    Cause.UNPROVEN: "a proof is missing above; the log may show why: vastrun logs {run}",
    Cause.CONTRADICTION: "the proofs above contradict each other; compare with the log: vastrun logs {run}",
    Cause.INTERNAL: "this is a bug in vastrun; report it with the log: vastrun logs {run}",
}


BATCH_ADVICE: Mapping[Cause, str] = {
    Cause.STORAGE: "free some space, then: {edited}",
    Cause.TIME_LIMIT: "raise limits.hours in{job_file}, then submit the batch again",
    Cause.MONEY_LIMIT: "raise limits.usd in{job_file}, then submit the batch again",
}
"""Advice for a run of a batch without a checkpoint: ADVICE for these causes is a command for a single run."""


@dataclass(frozen=True, kw_only=True)
class AdviceRule:
    """Advice for a failure that is known more exactly than its cause."""

    causes: tuple[Cause, ...]
    text: str
    detail: str = ""
    """A regular expression that the run's detail must contain."""


RULES: tuple[AdviceRule, ...] = (
    AdviceRule(
        causes=(Cause.COMMUNICATION, Cause.USER_ERROR),
        detail=r"EADDRINUSE|[Aa]ddress already in use",
        text="use the port in $MASTER_PORT, which is free on the machine, not a fixed one; then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.USER_ERROR,),
        detail="Duplicate GPU detected",
        text='each rank needs its own GPU: torch.cuda.set_device(int(os.environ["LOCAL_RANK"])); '
        "then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.USER_ERROR,),
        detail=r"NCCL built in|only supported with GPUs|not compiled with CUDA|no NVIDIA driver"
        r"|_cuda_setDevice|No CUDA GPUs are available",
        text="this torch or this machine has no GPU: choose the device by torch.cuda.is_available(), and "
        "gloo without one; or ask for GPUs with resources.gpus; then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.USER_ERROR,),
        detail=r"arguments are required:.*--local[-_]rank",
        text="add --local_rank $LOCAL_RANK, which torch.distributed.launch passed; then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.USER_ERROR,),
        detail="Weights only load failed",
        text="torch.load reads only tensors since torch 2.6: save tensors and plain values alone, or allow "
        "your classes with torch.serialization.add_safe_globals (weights_only=False runs whatever a machine "
        "put into the file); then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.USER_ERROR,),
        detail=r"devices=\d+` and `num_nodes=\d+` in Lightning|devices=.* in Lightning, but the number",
        text='set devices=int(os.environ["LOCAL_WORLD_SIZE"]) in Trainer(), which is the number of ranks; '
        "then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.OUT_OF_MEMORY,),
        detail="was full$|has the least room",
        text="it is memory, too: use fewer DataLoader workers, smaller batches or a TMPDIR on the disk; "
        "then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.USER_ERROR, Cause.HANG),
        detail="the ranks did not do the same work",
        text="give each rank the same number of batches (drop_last=True, or join() of DDP); then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.OUT_OF_MEMORY,),
        detail="the kernel killed",
        text="use less main memory, or ask for more with resources.memory_gb; then: {edited}",
    ),
    AdviceRule(
        causes=(Cause.USER_ERROR, Cause.SETUP),
        detail=r"ends with a carriage return|\^M: bad interpreter|required file not found|\\r': command"
        # What `env` of GNU says after "bash\r: No such file or directory".
        r"|to pass options in shebang lines",
        text="save the script with Unix line endings (LF, as dos2unix does); then: {edited}",
    ),
)
"""The first rule that fits a run comes before the advice of its cause."""


def advice_for(run: Run, *, checkpoint: bool, not_shipped: str = "") -> str:
    """Name one thing to do next. `checkpoint`: one was downloaded.

    `not_shipped`: what the program missed that is on this computer, why it was not uploaded, and the remedy.
    """
    if run.phase is Phase.DESTROY:
        return f"destroy its machine: vastrun resume {run.id}"
    if run.phase is not Phase.ENDED:
        return f"still running: vastrun attach {run.id}"
    if run.cause is None:
        return AFTER_SUCCESS
    spec = read_job(run.spec_json)
    where = "" if run.provider == "local" else f" --provider {run.provider}"
    job_file = f" {shlex.quote(spec.job_file or _ANY_FILE)}"
    in_batch = bool(run.batch) and not checkpoint
    if in_batch:
        edited = f"vastrun batch retry {run.batch}, or after a change of{job_file}: submit the batch again"
    else:
        edited = f"vastrun launch{job_file}{where}{f' --from {run.id}' if checkpoint else ''}"
    if of_slots := slot_advice(run, spec, job_file, where):
        return of_slots
    if not_shipped:
        return f"{not_shipped}, then: {edited}"
    # A run that is continued has its job with it.
    again = edited.replace(job_file, "", 1) if checkpoint else edited.partition(", or after")[0]
    resume = "continue it" if checkpoint else "start it again"
    of_cause = BATCH_ADVICE.get(run.cause, ADVICE[run.cause]) if in_batch else ADVICE[run.cause]
    text = _of_rules(run) or program_of(spec).advice.get(run.cause, of_cause)
    return text.format(run=run.id, again=again, edited=edited, where=where, resume=resume, job_file=job_file)


def advice_for_rehearsal(run: Run, *, not_shipped: str = "") -> str:
    """Name one thing to do after a rehearsal; empty where what it printed says more.

    `run`: as a launch would have ended. `not_shipped`: as for `advice_for`.
    """
    if run.cause is None:
        return AFTER_SUCCESS
    spec = read_job(run.spec_json)
    edited = f"vastrun rehearse {shlex.quote(spec.job_file or _ANY_FILE)}"
    if not_shipped:
        return f"{not_shipped}, then: {edited}"
    text = _of_rules(run) or program_of(spec).advice.get(run.cause, ADVICE[run.cause])
    # A rehearsal has no run that other commands know, and does not cost money or end at a lease.
    is_of_a_run = any(name not in (None, "edited") for _, name, *_ in Formatter().parse(text))
    return "" if is_of_a_run else text.format(edited=edited)


def _of_rules(run: Run) -> str:
    """Return the text of the first rule that fits, empty if none does."""
    fits = (rule for rule in RULES if run.cause in rule.causes and re.search(rule.detail, run.detail))
    return next((rule.text for rule in fits), "")


SLOT_ADVICE: Mapping[Cause, str] = {
    Cause.OUT_OF_MEMORY: "use a smaller batch, or hold a machine with more memory or fewer --slots: {hold}",
    Cause.DISK: "keep fewer files, or hold a machine with more resources.disk_gb or fewer --slots: {hold}",
    Cause.HOST: "end the held machine and its other slots: vastrun stop {holder}; then hold another: {hold}",
    Cause.NO_OFFER: "no held machine has a free slot for it: vastrun plan{job_file}{where}; or {hold}",
}
"""Advice for a run on a slot: its share of the machine does not change with the resources of its job."""
HOLD_ADVICE: Mapping[Cause, str] = {
    Cause.NO_OFFER: "one machine must have what all slots ask for, {together}; try fewer --slots: {hold}",
    Cause.TIME_LIMIT: "hold it again, for longer: {hold} --set limits.hours=...",
    Cause.MONEY_LIMIT: "hold it again, with more money: {hold} --set limits.usd=...",
    Cause.STOPPED: "hold it again: {hold}",
    **dict.fromkeys(
        (Cause.PREEMPTED, Cause.LOST, Cause.OUTPUTS_LOST, Cause.HOST), "hold another machine: {hold}"
    ),
}
"""Advice for a run that holds a machine."""


def slot_advice(run: Run, spec: JobSpec, job_file: str, where: str) -> str:
    """Return the advice for a run on a slot or one that holds a machine; empty where the general advice
    fits.

    `job_file`, `where`: words of a command, after a space.
    """
    if run.cause is None or run.batch:
        return ""
    if spec.hold is not None:
        hold = f"vastrun hold{job_file}{where} --slots N"
        return HOLD_ADVICE.get(run.cause, "").format(hold=hold, together=resources_of_slots(spec))
    if run.provider != POOL:
        return ""
    hold, holder = f"vastrun hold{job_file} --slots N", holder_of(run) or "RUN"
    text = SLOT_ADVICE.get(run.cause, "")
    return text.format(hold=hold, holder=holder, job_file=job_file, where=where)


def resources_of_slots(spec: JobSpec) -> str:
    """Return what a held machine needs for all its slots: `4 GPUs, 64 GB of memory, 80 GB of disk`."""
    resources = spec.resources
    parts = [
        f"{resources.gpus} GPUs" if resources.gpus else "",
        f"{resources.memory_gb:g} GB of memory" if resources.memory_gb else "",
        f"{resources.disk_gb:g} GB of disk",
    ]
    return ", ".join(filter(None, parts))
