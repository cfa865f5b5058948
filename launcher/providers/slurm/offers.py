"""Offers of a cluster's partitions for a job, and the reasons for partitions that do not fit."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vastrun.launcher.core import Offer
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.gate.slurm import Gpus, Partition, join_names

_ID = re.compile(r"([\w.+-]{1,100})/(\d{1,6})c(?:/(\d{1,9})M)?(?:/(\d{1,4})x([\w.+-]{1,100}))?", re.ASCII)
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

    @property
    def gres(self) -> str:
        """Argument of `--gres`."""
        return f"gpu:{self.gpus}" if self.kind == _UNNAMED_GPU else f"gpu:{self.kind}:{self.gpus}"


def partition_offers(
    spec: JobSpec, partitions: Sequence[Partition], settings: SlurmSettings, free_gb: float | None
) -> list[Offer]:
    """Return an offer for each partition that can run the job; low prices and idle nodes first.

    Raises NoOfferError with the reason of each partition.
    """
    resources = spec.resources
    if spec.nodes > 1 and settings.container == "pyxis":
        raise NoOfferError(
            "pyxis runs a job's image on one node", hint="vastrun config set slurm.container apptainer"
        )
    found: dict[str, Offer] = {}
    lacking = []
    has_room = free_gb is None or free_gb >= resources.disk_gb
    if not has_room:
        lacking.append(f"{resources.disk_gb:g} GB of disk needed, {free_gb:.0f} free on the shared disk")
    for partition in sorted(
        partitions, key=lambda one: (not one.is_idle, not one.is_default, one.max_s or math.inf)
    ):
        if settings.partitions and partition.name not in settings.partitions:
            continue
        share = _node_share(spec, partition)
        if why := _unfit_reason(spec, partition, share):
            lacking.append(f"{partition.name}: {why}")
        elif share is not None:
            found.setdefault(str(share), _offer(share, partition, partitions, settings, free_gb))
    if not found or not has_room:
        gpus = " --set resources.gpus=0 trains on CPUs;" if spec.resources.gpus else ""
        raise NoOfferError(
            f"no partition fits the job: {join_names(lacking) or 'there is none'}",
            hint=f"`sinfo` lists the partitions;{gpus} --set limits.hours={spec.limits.hours / 2:g} asks for "
            "less time",
        )
    # A job without GPUs on a node with GPUs would keep others from them, so such nodes come last.
    return sorted(
        found.values(),
        key=lambda offer: (offer.usd_per_hour, "GPU" in offer.description and not resources.gpus),
    )


def price(settings: SlurmSettings, gpus: int) -> float:
    """Return the price of a node with `gpus` GPUs in USD per hour."""
    return settings.usd_per_node_hour + gpus * settings.usd_per_gpu_hour


def _node_share(spec: JobSpec, partition: Partition) -> NodeShare | None:
    """Return the job's share of a node; None when its GPUs are too few or of another model."""
    resources = spec.resources
    if not resources.gpus:
        cores = min(partition.cores, max(1, spec.ranks_per_node, resources.cpu_cores))
        part = cores / max(1, partition.cores)
        return NodeShare(
            partition=partition.name, cores=cores, memory_mb=_memory_mb(partition, resources, part)
        )
    for gpus in partition.gpus:
        if gpus.count >= resources.gpus and _is_named(gpus, resources):
            part = resources.gpus / gpus.count
            return NodeShare(
                partition=partition.name,
                cores=min(
                    partition.cores,
                    max(spec.ranks_per_node, resources.cpu_cores, math.floor(partition.cores * part), 1),
                ),
                memory_mb=_memory_mb(partition, resources, part),
                gpus=resources.gpus,
                kind=gpus.kind or _UNNAMED_GPU,
            )
    return None


def _memory_mb(partition: Partition, resources: Resources, part: float) -> int:
    """Return the proportional memory in MB, at least the job's; 0 when neither states any."""
    return max(math.floor(partition.memory_mb * part), math.ceil(resources.memory_gb * 1000))


def _unfit_reason(spec: JobSpec, partition: Partition, share: NodeShare | None) -> str:
    """Return why these nodes cannot run the job; empty when they can."""
    resources, hours = spec.resources, spec.limits.hours
    if not partition.is_usable:
        return "its nodes are down or drained"
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
    if partition.nodes < spec.nodes:
        return f"{spec.nodes} nodes needed, {partition.nodes} available"
    return ""


def _offer(
    share: NodeShare,
    partition: Partition,
    partitions: Iterable[Partition],
    settings: SlurmSettings,
    free_gb: float | None,
) -> Offer:
    nodes = [one for one in partitions if one.name == share.partition and one.is_usable]
    idle = sum(one.nodes for one in nodes if one.is_idle)
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
            f"{idle} of {sum(one.nodes for one in nodes)} nodes idle{other}"
        ),
    )


def _is_named(gpus: Gpus, resources: Resources) -> bool:
    """Compare names loosely: a site's `a100` may be "A100 SXM4"; the box checks its GPU before training."""
    if not resources.gpu_names or not gpus.kind:
        return True
    shown = gpus.kind.lower()
    numbers = [re.findall(r"[a-z]*\d+[a-z]*", name.lower()) for name in resources.gpu_names]
    return any(any(number in shown for number in found) for found in numbers)
