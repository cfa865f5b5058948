"""Held machines: whether a job fits a slot of one, and its price. Pure functions.

A machine is held by a run like any other, whose job has a `hold:` section that vastrun writes itself. A run
on one of its slots is a run of the provider `pool`. Whoever reserves money reserves it for the machine, and
nothing for the runs on its slots: their shares are part of its bill (`cost/spending.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Offer, Phase, Run
from vastrun.launcher.core.gpus import has_memory, is_named
from vastrun.launcher.core.job import Hold, JobSpec, Limits, Resources
from vastrun.launcher.core.labels import POOL as POOL
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.holders import is_holder

MIN_LEFT_S = 300.0
"""Min. seconds of lease with which a machine takes new slots."""
GIVE_BACK_S = 60.0
"""Seconds for which an idle machine is kept once the queue has nothing for it."""
_HELD = (Phase.TRAIN, Phase.COLLECT, Phase.DESTROY)
"""Phases in which a held machine may have slots."""
_ROUNDING = 1e-6
"""Tolerance: a third of three times a size may be less than that size."""


@dataclass(frozen=True, kw_only=True)
class HeldMachineRow:
    """A held machine, as the ledger shows it."""

    run: Run
    """The run that holds it, with its price, its lease and its bill."""
    spec: JobSpec
    hold: Hold
    offer: Offer

    @property
    def takes_slots(self) -> bool:
        """Return whether new slots may be made there. A machine that ends still has its old ones."""
        return self.run.phase is Phase.TRAIN

    def share_usd_per_hour(self, units: int) -> float:
        """Return the USD per hour of `units` of its equal parts."""
        return self.run.usd_per_hour * units / self.hold.slots

    def left_s(self, now: float) -> float:
        """Return the seconds until its lease ends it, by the launcher's count."""
        ends_at = policy.lease_ends_at(self.run, policy.lease_of(self.spec, self.offer))
        return 0.0 if ends_at is None else max(0.0, ends_at - now)


def held_machines(runs: Iterable[Run]) -> list[HeldMachineRow]:
    """Return the held machines of open runs."""
    found = []
    for run in runs:
        if run.phase in _HELD and run.instance_id is not None and run.offer is not None and is_holder(run):
            spec = read_job(run.spec_json)
            assert spec.hold is not None
            found.append(HeldMachineRow(run=run, spec=spec, hold=spec.hold, offer=run.offer))
    return found


def is_for(job: JobSpec, held: HeldMachineRow) -> bool:
    """Return whether the machine is held for this job: a batch's machine takes only that batch's runs."""
    return not held.run.batch if job.slot_on is None else held.run.id == job.slot_on


def hold_spec(job: JobSpec, *, slots: int, hours: float, usd: float | None, idle_s: float) -> JobSpec:
    """Return the job of a run that holds a machine for `slots` concurrent runs of `job`.

    Each slot gets the resources of the job, at the job's hourly price limit. `hours` and `usd` are the
    limits of the machine.
    """
    requested, gpus, max_usd_per_hour = job.resources, job.resources.gpus, job.limits.usd_per_hour
    # The data once more: the machine keeps a copy for its next slots.
    disk_gb = max(8.0, requested.disk_gb) * slots + job.data_gb
    return JobSpec(
        name=f"hold-{job.name}"[:63],
        resources=replace(requested.times(slots), disk_gb=disk_gb),
        limits=Limits(
            hours=hours,
            usd=usd,
            usd_per_hour=None if max_usd_per_hour is None else max_usd_per_hour * slots,
            collect_s=120.0,
        ),
        image=job.image,
        image_unpinned=job.image_unpinned,
        ranks=1,
        tags=job.tags,
        hold=Hold(slots=max(1, gpus) * slots, idle_s=idle_s),
        job_file=job.job_file,
    )


def units_of(requested: Resources, held: HeldMachineRow) -> int:
    """Return the number of equal parts of the machine that a job needs, by its GPUs and its memory."""
    share_gb = held.spec.resources.memory_gb / held.hold.slots
    for_memory = math.ceil(requested.memory_gb / share_gb - _ROUNDING) if share_gb else 0
    return max(1, requested.gpus, for_memory)


def unfit_reason(job: JobSpec, held: HeldMachineRow, now: float) -> str:
    """Return why the job cannot have a slot there, even if one is free; empty: it can.

    Limits that only an offer shows, like reliability, count as met where the machine was chosen by a limit
    as strict.
    """
    held_resources, requested, offer = held.spec.resources, job.resources, held.offer
    units = units_of(requested, held)
    share_gb = held_resources.disk_gb * units / held.hold.slots
    share_cores = held_resources.cpu_cores * units / held.hold.slots
    regions = {*held_resources.regions}
    checks = (
        (held.takes_slots, "it is being destroyed"),
        (held.left_s(now) >= MIN_LEFT_S, "its lease ends soon"),
        (job.nodes == 1, f"{job.nodes} machines wanted"),
        (units <= held.hold.slots, _too_small(requested, held)),
        (not requested.memory_gb or held_resources.memory_gb > 0, "its memory was not requested"),
        (
            requested.disk_gb <= share_gb + _ROUNDING,
            f"{requested.disk_gb:g} GB of disk wanted, {share_gb:.0f} in its share",
        ),
        (_has_gpus(requested, held), f"it has {offer.gpus} x {offer.gpu_name or 'no GPU'}"),
        (held.offer.image is None or job.image == held.spec.image, "it runs another image"),
        (requested.reliability <= held_resources.reliability, "it was chosen with less reliability"),
        (
            not requested.regions or (regions and regions <= {*requested.regions}),
            "it may be in another region",
        ),
        (requested.interruptible or not held_resources.interruptible, "it may be taken away"),
        (requested.down_mbps <= held_resources.down_mbps, "its download speed was not asked for"),
        (requested.up_mbps <= held_resources.up_mbps, "its upload speed was not asked for"),
        (requested.disk_mbps <= held_resources.disk_mbps, "the speed of its disk was not asked for"),
        (
            requested.cpu_cores <= share_cores + _ROUNDING,
            f"{requested.cpu_cores} CPU cores wanted, {share_cores:g} asked for its share",
        ),
        (held_resources.nvlink or not requested.nvlink, "NVLink was not asked for"),
        (held_resources.datacenter or not requested.datacenter, "it may be outside a datacenter"),
        (held_resources.static_ip or not requested.static_ip, "its IP address may change"),
    )
    return next((why for holds, why in checks if not holds), "")


def slot_offer(job: JobSpec, held: HeldMachineRow, *, hours: float) -> Offer:
    """Return a slot there as an offer. Nothing is booted, pulled or fetched, so there is no loading cost."""
    units = units_of(job.resources, held)
    price = held.share_usd_per_hour(units)
    offer, gpus = held.offer, job.resources.gpus
    devices = f"{gpus} x {offer.gpu_name}" if gpus else "no GPU"
    share = f"{units}/{held.hold.slots}"
    return Offer(
        id=held.run.id,
        host=held.run.host,
        gpu_name=offer.gpu_name if gpus else None,
        gpus=gpus,
        gpu_memory_gb=offer.gpu_memory_gb if gpus else 0.0,
        disk_gb=held.spec.resources.disk_gb * units / held.hold.slots,
        usd_per_hour=price,
        description=f"slot on {held.run.provider}: {share} of {held.run.id}, {devices}",
        expected_usd=price * hours,
        image=offer.image,
        image_whole=offer.image_whole,
        cuda=offer.cuda,
    )


def _too_small(requested: Resources, held: HeldMachineRow) -> str:
    if requested.gpus > held.hold.slots:
        return f"{requested.gpus} GPUs wanted, it has {held.offer.gpus}"
    return f"{requested.memory_gb:g} GB of memory wanted, it has {held.spec.resources.memory_gb:g}"


def _has_gpus(requested: Resources, held: HeldMachineRow) -> bool:
    if not requested.gpus:
        return True
    offer = held.offer
    names = not requested.gpu_names or any(
        is_named(name, offer.gpu_name or "") for name in requested.gpu_names
    )
    cuda = offer.cuda == 0 or requested.cuda <= offer.cuda
    return (
        requested.gpus <= offer.gpus
        and names
        and has_memory(offer.gpu_memory_gb, requested.min_gpu_gb)
        and cuda
    )
