"""Advice: what to try next, by cause."""

from __future__ import annotations

from collections.abc import Mapping

from launcher.core import Cause, Phase, Run

_DEFAULT = "local"
"""Where a command goes that names no provider."""
AFTER_SUCCESS = "nothing to do"

ADVICE: Mapping[Cause, str] = {
    Cause.USER_ERROR: "fix the program or the job file, then: {edited}",
    Cause.SETUP: "read what the step that failed wrote: vastrun logs {run} --first-error",
    Cause.OUT_OF_MEMORY: "halve train.batch, or ask for more with resources.gpu_memory_gb",
    Cause.SIGNAL: "read the rank's last lines: vastrun logs {run} --first-error",
    Cause.COMMUNICATION: "set nccl_debug: INFO to see which rank failed first, or try another machine",
    Cause.DATA: "read which data it failed on: vastrun logs {run} --first-error",
    Cause.DIVERGED: "lower train.optim.lr or train.optim.clip, or raise train.optim.warmup; then: {edited}",
    Cause.DISK: "ask for more with resources.disk_gb, or keep fewer checkpoints",
    Cause.HOST: "launch again on another machine; `retry: {{host: 2}}` does this automatically",
    Cause.SLOW: "{resume} on another machine, its host is avoided now: {again}",
    Cause.STORAGE: "free some space, or choose another folder: vastrun launch JOB.yaml{where} --out DIR",
    Cause.HANG: "read the stacks; raise limits.stall_s only if the rank was slow, not stuck",
    Cause.STOPPED: "{resume}: {again}",
    Cause.PRUNED: "others of its batch do better; to finish it all the same, {resume}: {again}",
    Cause.TIME_LIMIT: "{resume} with more time: {again} --set limits.hours=... (or a later --by)",
    Cause.MONEY_LIMIT: "{resume} with more money: {again} --set limits.usd=...",
    Cause.PREEMPTED: "{resume} on another machine: {again}",
    Cause.LOST: "{resume} on another machine: {again}",
    Cause.NO_OFFER: "relax the requirements that no offer meets: vastrun plan JOB.yaml{where}",
    Cause.PROVIDER: "see what the provider said: vastrun why {run}; then launch again",
    Cause.UNPROVEN: "a proof is missing above; the log may show why: vastrun logs {run}",
    Cause.CONTRADICTION: "the proofs above contradict each other; compare with the log: vastrun logs {run}",
    Cause.INTERNAL: "this is a bug in vastrun; report it with the log: vastrun logs {run}",
}


def advice_for(run: Run, *, checkpoint: bool) -> str:
    """Name one thing to do next. `checkpoint`: one was downloaded."""
    if run.phase is Phase.DESTROY:
        return f"destroy its machine: vastrun resume {run.id}"
    if run.phase is not Phase.ENDED:
        return f"still running: vastrun attach {run.id}"
    if run.cause is None:
        return AFTER_SUCCESS
    where = "" if run.provider == _DEFAULT else f" --provider {run.provider}"
    edited = f"vastrun launch JOB.yaml{where}{f' --from {run.id}' if checkpoint else ''}"
    # A run that is continued has its job with it.
    again = edited.replace(" JOB.yaml", "") if checkpoint else edited
    resume = "continue it" if checkpoint else "start it again"
    return ADVICE[run.cause].format(run=run.id, again=again, edited=edited, where=where, resume=resume)
