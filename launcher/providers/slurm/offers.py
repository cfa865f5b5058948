"""Offers: what a partition has for one job, and what every partition lacks."""

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
_ANY = "gpu"
"""Where the site does not name the kind of its GPUs."""


@dataclass(frozen=True, kw_only=True)
class NodeShare:
    """What a job gets of each of its nodes. As text it is the id of an offer: `gpu/16c/64000M/2xa100`."""

    partition: str
    cores: int
    memory_mb: int = 0
    """0: what the site gives."""
    gpus: int = 0
    kind: str = _ANY

    def __str__(self) -> str:
        memory = f"/{self.memory_mb}M" if self.memory_mb else ""
        gpus = f"/{self.gpus}x{self.kind}" if self.gpus else ""
        return f"{self.partition}/{self.cores}c{memory}{gpus}"

    @classmethod
    def of(cls, offer_id: str) -> NodeShare | None:
        """Read it; None: that is the id of no offer of Slurm's."""
        found = _ID.fullmatch(offer_id)
        if not found:
            return None
        partition, cores, memory, gpus, kind = found.groups()
        return cls(
            partition=partition,
            cores=int(cores),
            memory_mb=int(memory or 0),
            gpus=int(gpus or 0),
            kind=kind or _ANY,
        )

    @property
    def gres(self) -> str:
        """What `--gres` takes."""
        return f"gpu:{self.gpus}" if self.kind == _ANY else f"gpu:{self.kind}:{self.gpus}"


def offers_for(
    spec: JobSpec, partitions: Sequence[Partition], settings: SlurmSettings, free_gb: float | None
) -> list[Offer]:
    """Return an offer for each partition that can run the job; those with idle nodes and low prices first.

    Raises NoOfferError, which says what each of them lacks.
    """
    wanted = spec.resources
    if spec.nodes > 1 and settings.container == "pyxis":
        raise NoOfferError(
            "pyxis runs a job's image on one node", hint="vastrun config set slurm.container apptainer"
        )
    found: dict[str, Offer] = {}
    lacking = []
    has_room = free_gb is None or free_gb >= wanted.disk_gb
    if not has_room:
        lacking.append(f"{wanted.disk_gb:g} GB of disk wanted, {free_gb:.0f} free on the shared disk")
    for partition in sorted(partitions, key=_rank):
        if settings.partitions and partition.name not in settings.partitions:
            continue
        share = _share(spec, partition)
        if why := _lack(spec, partition, share):
            lacking.append(f"{partition.name}: {why}")
        elif share is not None:
            found.setdefault(str(share), _offer(share, partition, partitions, settings, free_gb))
    if not found or not has_room:
        raise NoOfferError(
            f"no partition fits the job: {join_names(lacking) or 'there is none'}", hint=_hint(spec)
        )
    # On a node with GPUs a job without them keeps others out.
    return sorted(
        found.values(), key=lambda offer: (offer.usd_per_hour, "GPU" in offer.description and not wanted.gpus)
    )


def price(settings: SlurmSettings, gpus: int) -> float:
    """Return what a node with so many GPUs costs, in dollars per hour."""
    return settings.usd_per_node_hour + gpus * settings.usd_per_gpu_hour


def _rank(partition: Partition) -> tuple[bool, bool, float]:
    return not partition.is_idle, not partition.is_default, partition.max_s or math.inf


def _share(spec: JobSpec, partition: Partition) -> NodeShare | None:
    """The job's part of a node; None: its GPUs are too few, or others."""
    wanted = spec.resources
    if not wanted.gpus:
        cores = min(partition.cores, max(1, spec.ranks_per_node, wanted.cpu_cores))
        part = cores / max(1, partition.cores)
        return NodeShare(partition=partition.name, cores=cores, memory_mb=_memory_mb(partition, wanted, part))
    for gpus in partition.gpus:
        if gpus.count >= wanted.gpus and _is_wanted(gpus, wanted):
            part = wanted.gpus / gpus.count
            return NodeShare(
                partition=partition.name,
                cores=min(
                    partition.cores,
                    max(spec.ranks_per_node, wanted.cpu_cores, math.floor(partition.cores * part), 1),
                ),
                memory_mb=_memory_mb(partition, wanted, part),
                gpus=wanted.gpus,
                kind=gpus.kind or _ANY,
            )
    return None


def _memory_mb(partition: Partition, wanted: Resources, part: float) -> int:
    """At least what the job asks for; 0: neither says."""
    return max(math.floor(partition.memory_mb * part), math.ceil(wanted.memory_gb * 1000))


def _lack(spec: JobSpec, partition: Partition, share: NodeShare | None) -> str:
    """Why these nodes cannot run the job; empty: they can."""
    wanted, hours = spec.resources, spec.limits.hours
    if not partition.is_usable:
        return "its nodes are down or drained"
    if share is None:
        kinds = join_names(f"{gpus.count} x {gpus.kind or 'GPU'}" for gpus in partition.gpus) or "none"
        kind = f" of {' or '.join(wanted.gpu_names)}" if wanted.gpu_names else ""
        return f"{wanted.gpus} {'GPU' if wanted.gpus == 1 else 'GPUs'}{kind} wanted, {kinds} on a node"
    if partition.max_s is not None and partition.max_s < hours * 3600:
        return f"{hours:g} h wanted, {partition.max_s / 3600:g} h allowed"
    if partition.memory_mb and partition.memory_mb < wanted.memory_gb * 1000:
        return f"{wanted.memory_gb:g} GB of memory wanted, {partition.memory_mb / 1000:.0f} on a node"
    if partition.cores < spec.ranks_per_node:
        return f"{spec.ranks_per_node} ranks wanted, {partition.cores} cores on a node"
    if partition.cores < wanted.cpu_cores:
        return f"{wanted.cpu_cores} CPU cores wanted, {partition.cores} on a node"
    if partition.nodes < spec.nodes:
        return f"{spec.nodes} nodes wanted, {partition.nodes} there"
    return ""


def _offer(
    share: NodeShare,
    partition: Partition,
    all_of_it: Iterable[Partition],
    settings: SlurmSettings,
    free_gb: float | None,
) -> Offer:
    alike = [one for one in all_of_it if one.name == share.partition and one.is_usable]
    idle = sum(one.nodes for one in alike if one.is_idle)
    devices = f"{share.gpus} x {share.kind if share.kind != _ANY else 'GPU'}, " if share.gpus else ""
    other = "" if share.gpus or not partition.gpus else "; a node with GPUs"
    memory = f", {share.memory_mb / 1000:.0f} GB memory" if share.memory_mb else ""
    return Offer(
        id=str(share),
        host=f"partition {share.partition}",
        gpu_name=share.kind if share.gpus and share.kind != _ANY else None,
        gpus=share.gpus,
        gpu_memory_gb=0.0,
        disk_gb=free_gb or 0.0,
        usd_per_hour=price(settings, share.gpus),
        description=(
            f"Slurm, {share.partition}: {devices}{share.cores} cores{memory}; "
            f"{idle} of {sum(one.nodes for one in alike)} nodes idle{other}"
        ),
    )


def _is_wanted(gpus: Gpus, wanted: Resources) -> bool:
    """A site's `a100` may be Vast's "A100 SXM4": the box looks for itself before it trains."""
    if not wanted.gpu_names or not gpus.kind:
        return True
    shown = gpus.kind.lower()
    numbers = [re.findall(r"[a-z]*\d+[a-z]*", name.lower()) for name in wanted.gpu_names]
    return any(any(number in shown for number in found) for found in numbers)


def _hint(spec: JobSpec) -> str:
    gpus = " --set resources.gpus=0 trains on CPUs;" if spec.resources.gpus else ""
    return (
        f"`sinfo` lists the partitions;{gpus} --set limits.hours={spec.limits.hours / 2:g} asks for less time"
    )
