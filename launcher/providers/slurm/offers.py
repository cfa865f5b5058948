"""Offers of a cluster's partitions for a job, by the answers of the scheduler, and why others have none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from vastrun.launcher.core import Offer
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.decisions.policy import lease_of
from vastrun.launcher.gate.slurm import Gpus, Partition, StartEstimate, join_names

_ID = re.compile(r"([\w.+-]{1,100})/(\d{1,6})c(?:/(\d{1,9})M)?(?:/(\d{1,4})x([\w.+-]{1,100}))?", re.ASCII)
_START_S = 120.0
"""Seconds for the start of a job and its lease, added to the time limit so that the lease expires first."""
_UNNAMED_GPU = "gpu"
"""Placeholder when the site does not name the model of its GPUs."""


@dataclass(frozen=True, kw_only=True)
class NodeShare:
    """A job's share of each node. Its text is an offer's id, such as `gpu/16c/64000M/2xa100`."""

    partition: str
    cores: int
    memory_mb: int = 0
    """Memory in MB; 0: the site's default."""
    gpus: int = 0
    kind: str = _UNNAMED_GPU

    def __str__(self) -> str:
        memory = f"/{self.memory_mb}M" if self.memory_mb else ""
        gpus = f"/{self.gpus}x{self.kind}" if self.gpus else ""
        return f"{self.partition}/{self.cores}c{memory}{gpus}"

    @classmethod
    def of(cls, offer_id: str) -> NodeShare | None:
        """Parse an offer's id; None when it is not one of Slurm's."""
        found = _ID.fullmatch(offer_id)
        if not found:
            return None
        partition, cores, memory, gpus, kind = found.groups()
        return cls(
            partition=partition,
            cores=int(cores),
            memory_mb=int(memory or 0),
            gpus=int(gpus or 0),
            kind=kind or _UNNAMED_GPU,
        )

    def options(self, nodes: int, minutes: int) -> Sequence[str]:
        """Return the options of `sbatch` for this share of each of `nodes` nodes."""
        gres = f"gpu:{self.gpus}" if self.kind == _UNNAMED_GPU else f"gpu:{self.kind}:{self.gpus}"
        return (
            f"--partition={self.partition}",
            f"--time={minutes}",
            f"--nodes={nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={self.cores}",
            *([f"--mem={self.memory_mb}M"] if self.memory_mb else []),
            *([f"--gres={gres}"] if self.gpus else []),
        )


def job_minutes(lease_s: float, max_s: float | None) -> int:
    """Return the time limit of a job: that of its lease plus a margin, within the partition's limit."""
    return max(1, math.ceil(min(lease_s + _START_S, max(max_s or math.inf, lease_s)) / 60))


def partition_offers(
    spec: JobSpec,
    partitions: Sequence[Partition],
    settings: SlurmSettings,
    free_gb: float | None,
    test: Callable[[Sequence[Sequence[str]]], Sequence[StartEstimate]],
) -> tuple[list[Offer], list[str]]:
    """Return an offer for each partition in which Slurm accepts the job, best first, and why the others have
    none.

    `test`: asks the scheduler, by options of `sbatch`. Low prices come first, then early starts.
    """
    candidates: dict[NodeShare, tuple[Offer, Partition, str]] = {}
    lacking: dict[str, str] = {}
    for nodes in sorted(
        partitions, key=lambda one: (not one.is_usable, not one.is_default, one.max_s or math.inf)
    ):
        if settings.partitions and nodes.name not in settings.partitions:
            continue
        share = _node_share(spec, nodes)
        whole = [one for one in partitions if one.name == nodes.name]
        why = _unfit_reason(spec, nodes, share, sum(one.nodes for one in whole))
        # Slurm accepts a job above the limit of its partition, and may never start it (man sbatch, --time).
        if share is None or (nodes.max_s is not None and nodes.max_s < spec.limits.hours * 3600):
            lacking.setdefault(nodes.name, why)
        else:
            candidates.setdefault(share, (_offer(share, nodes, whole, settings, free_gb), nodes, why))
    limits = {share: lease_of(spec, offer).life_s for share, (offer, _, _) in candidates.items()}
    jobs = [
        (*share.options(spec.nodes, job_minutes(limits[share], nodes.max_s)), *settings.sbatch)
        for share, (_, nodes, _) in candidates.items()
    ]
    ranked = []
    for (offer, nodes, why), start in zip(candidates.values(), test(jobs), strict=True):
        is_whole = all(one.is_usable for one in partitions if one.name == nodes.name)
        # The test says the same of nodes that are drained as of nodes that the partition does not have.
        if start.refusal and (is_whole or why or not start.may_wait):
            lacking.setdefault(nodes.name, f"{start.refusal} ({why})" if why else start.refusal)
            continue
        wait_s = start.wait_s if nodes.is_usable else None
        text = "waits: nodes are down or drained"
        if wait_s is not None:
            text = f"starts in {wait_s / 60:.0f} min" if wait_s >= 60 else "starts now"
            text += " and preempts other jobs" if start.preempts else ""
        # A job without GPUs on a node with GPUs would keep others from them, so such nodes come last.
        is_waste, minutes = bool(nodes.gpus) and not offer.gpus, math.inf if wait_s is None else wait_s // 60
        rank = (offer.usd_per_hour, is_waste, start.preempts, minutes)
        ranked.append((rank, replace(offer, description=f"{offer.description}; {text}", wait_s=wait_s)))
    found = [offer for _, offer in sorted(ranked, key=itemgetter(0))]
    taken = {offer.host for offer in found}
    return found, [f"{name}: {why}" for name, why in lacking.items() if f"partition {name}" not in taken]


def price(settings: SlurmSettings, gpus: int) -> float:
    """Return the price of a node with `gpus` GPUs in USD per hour."""
    return settings.usd_per_node_hour + gpus * settings.usd_per_gpu_hour


def _node_share(spec: JobSpec, partition: Partition) -> NodeShare | None:
    """Return the job's share of a node; None when its GPUs are too few or of another model."""
    resources = spec.resources
    if not resources.gpus:
        cores = max(1, spec.ranks_per_node, resources.cpu_cores)
        part = min(1.0, cores / max(1, partition.cores))
        return NodeShare(
            partition=partition.name, cores=cores, memory_mb=_memory_mb(partition, resources, part)
        )
    for gpus in partition.gpus:
        if gpus.count >= resources.gpus and _is_named(gpus, resources):
            part = resources.gpus / gpus.count
            return NodeShare(
                partition=partition.name,
                cores=max(spec.ranks_per_node, resources.cpu_cores, math.floor(partition.cores * part), 1),
                memory_mb=_memory_mb(partition, resources, part),
                gpus=resources.gpus,
                kind=gpus.kind or _UNNAMED_GPU,
            )
    return None


def _memory_mb(partition: Partition, resources: Resources, part: float) -> int:
    """Return the proportional memory in MB, at least the job's; 0 when neither states any."""
    return max(math.floor(partition.memory_mb * part), math.ceil(resources.memory_gb * 1000))


def _unfit_reason(spec: JobSpec, partition: Partition, share: NodeShare | None, nodes: int) -> str:
    """Return what such nodes lack for the job, by their hardware; empty when it fits them. `nodes`: of the
    whole partition."""
    resources, hours = spec.resources, spec.limits.hours
    if share is None:
        kinds = join_names(f"{gpus.count} x {gpus.kind or 'GPU'}" for gpus in partition.gpus) or "none"
        kind = f" of {' or '.join(resources.gpu_names)}" if resources.gpu_names else ""
        return f"{resources.gpus} {'GPU' if resources.gpus == 1 else 'GPUs'}{kind} needed, {kinds} on a node"
    if partition.max_s is not None and partition.max_s < hours * 3600:
        return f"{hours:g} h needed, {partition.max_s / 3600:g} h allowed"
    if partition.memory_mb and partition.memory_mb < resources.memory_gb * 1000:
        return f"{resources.memory_gb:g} GB of memory needed, {partition.memory_mb / 1000:.0f} on a node"
    if partition.cores < spec.ranks_per_node:
        return f"{spec.ranks_per_node} ranks needed, {partition.cores} cores on a node"
    if partition.cores < resources.cpu_cores:
        return f"{resources.cpu_cores} CPU cores needed, {partition.cores} on a node"
    if nodes < spec.nodes:
        return f"{spec.nodes} nodes needed, {nodes} in the partition"
    return ""


def _offer(
    share: NodeShare,
    partition: Partition,
    whole: Sequence[Partition],
    settings: SlurmSettings,
    free_gb: float | None,
) -> Offer:
    idle = sum(one.nodes for one in whole if one.is_usable and one.is_idle)
    devices = f"{share.gpus} x {share.kind if share.kind != _UNNAMED_GPU else 'GPU'}, " if share.gpus else ""
    other = "" if share.gpus or not partition.gpus else "; a node with GPUs"
    memory = f", {share.memory_mb / 1000:.0f} GB memory" if share.memory_mb else ""
    return Offer(
        id=str(share),
        host=f"partition {share.partition}",
        gpu_name=share.kind if share.gpus and share.kind != _UNNAMED_GPU else None,
        gpus=share.gpus,
        gpu_memory_gb=0.0,
        disk_gb=free_gb or 0.0,
        usd_per_hour=price(settings, share.gpus),
        description=(
            f"Slurm, {share.partition}: {devices}{share.cores} cores{memory}; "
            f"{idle} of {sum(one.nodes for one in whole)} nodes idle{other}"
        ),
    )


def _is_named(gpus: Gpus, resources: Resources) -> bool:
    """Compare names loosely: a site's `a100` may be "A100 SXM4"; the box checks its GPU before training."""
    if not resources.gpu_names or not gpus.kind:
        return True
    shown = gpus.kind.lower()
    numbers = [re.findall(r"[a-z]*\d+[a-z]*", name.lower()) for name in resources.gpu_names]
    return any(any(number in shown for number in found) for found in numbers)
