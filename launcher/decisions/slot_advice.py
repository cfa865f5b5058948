"""Advice for a run that holds a machine, and for one on a slot of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from launcher.core import Cause, Run
from launcher.core.slots import POOL
from launcher.decisions.holders import holder_of

if TYPE_CHECKING:
    from launcher.core.job import JobSpec

SLOT_ADVICE: Mapping[Cause, str] = {
    Cause.OUT_OF_MEMORY: "use a smaller batch, or hold a machine with more memory or fewer --slots: {hold}",
    Cause.DISK: "keep fewer files, or hold a machine with more resources.disk_gb or fewer --slots: {hold}",
    Cause.HOST: "end the held machine and its other slots: vastrun stop {holder}; then hold another: {hold}",
    Cause.SLOW: "its other slots may slow it down; hold a machine with fewer --slots: {hold}",
    Cause.NO_OFFER: "no held machine has a free slot for it: vastrun plan{job_file}{where}; or {hold}",
}
"""For a run on a slot: its share of the machine does not change with the resources of its job."""
HOLD_ADVICE: Mapping[Cause, str] = {
    Cause.NO_OFFER: "one machine must have what all slots ask for, {together}; try fewer --slots: {hold}",
    Cause.TIME_LIMIT: "hold it again, for longer: {hold} --set limits.hours=...",
    Cause.MONEY_LIMIT: "hold it again, with more money: {hold} --set limits.usd=...",
    Cause.STOPPED: "hold it again: {hold}",
    Cause.PREEMPTED: "hold another machine: {hold}",
    Cause.LOST: "hold another machine: {hold}",
    Cause.HOST: "hold another machine: {hold}",
}
"""For a run that holds a machine."""


def slot_advice(run: Run, spec: JobSpec, job_file: str) -> str:
    """Return what to try next for such a run; empty where the advice for any run fits, or its batch decides.

    `job_file`: as a word of a command, after a space.
    """
    if run.cause is None or run.batch:
        return ""
    if spec.hold is not None:
        where = "" if run.provider == "local" else f" --provider {run.provider}"
        hold = f"vastrun hold{job_file}{where} --slots N"
        return HOLD_ADVICE.get(run.cause, "").format(hold=hold, together=resources_of_slots(spec))
    if run.provider != POOL:
        return ""
    hold, holder = f"vastrun hold{job_file} --slots N", holder_of(run) or "RUN"
    text = SLOT_ADVICE.get(run.cause, "")
    return text.format(hold=hold, holder=holder, job_file=job_file, where=f" --provider {POOL}")


def resources_of_slots(spec: JobSpec) -> str:
    """Return what a held machine needs for all its slots: `4 GPUs, 64 GB of memory, 80 GB of disk`."""
    resources = spec.resources
    parts = [
        f"{resources.gpus} GPUs" if resources.gpus else "",
        f"{resources.memory_gb:g} GB of memory" if resources.memory_gb else "",
        f"{resources.disk_gb:g} GB of disk",
    ]
    return ", ".join(filter(None, parts))
