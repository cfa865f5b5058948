"""Offers of a cluster's partitions for a job, by the answers of the scheduler, and why others have none."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from vastrun.contract.texts import how_many
from vastrun.launcher.core import Offer
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.core.settings import SlurmSettings
from vastrun.launcher.decisions.policy import lease_of
from vastrun.launcher.gate.slurm import Gpus, Partition, StartEstimate, join_names

_ID = re.compile(
    r"([\w.+-]{1,100})/(\d{1,8})min/(\d{1,6})c(?:/(\d{1,9})M)?(?:/(\d{1,4})x([\w.+-]{1,100}))?", re.ASCII
)
_MAY_WAIT = ("node configuration is not available", "down, drained or reserved")
"""Refusals of a test that also hold for nodes that will come back: `sbatch` accepts the job."""
_START_S = 120.0
"""Seconds for the start of a job and its lease, added to the time limit so that the lease expires first."""
_UNNAMED_GPU = "gpu"
"""Placeholder when the site does not name the model of its GPUs."""


@dataclass(frozen=True, kw_only=True)
class NodeShare:
    """A job's share of each node. Its text is an offer's id, for example `gpu/62min/16c/64000M/2xa100`."""

    partition: str
    minutes: int = 0
    """Time limit."""
    cores: int
    memory_mb: int = 0
    """Memory in MB; 0: the site's default."""
    gpus: int = 0
    kind: str = _UNNAMED_GPU

    def __str__(self) -> str:
        memory = f"/{self.memory_mb}M" if self.memory_mb else ""
        gpus = f"/{self.gpus}x{self.kind}" if self.gpus else ""
        return f"{self.partition}/{self.minutes}min/{self.cores}c{memory}{gpus}"

    @classmethod
    def of(cls, offer_id: str) -> NodeShare | None:
        """Parse an offer's id; None when it is not one of Slurm's."""
        found = _ID.fullmatch(offer_id)
        if not found:
            return None
        minutes, cores, memory, gpus = (int(found[number] or 0) for number in (2, 3, 4, 5))
        kind = found[6] or _UNNAMED_GPU
        return cls(partition=found[1], minutes=minutes, cores=cores, memory_mb=memory, gpus=gpus, kind=kind)

    def options(self, nodes: int) -> Sequence[str]:
        """Return the options of `sbatch` for this share of each of `nodes` nodes."""
        gres = f"gpu:{self.gpus}" if self.kind == _UNNAMED_GPU else f"gpu:{self.kind}:{self.gpus}"
        return (
            f"--partition={self.partition}",
            f"--time={self.minutes}",
            f"--nodes={nodes}",
            "--ntasks-per-node=1",
            f"--cpus-per-task={self.cores}",
            *([f"--mem={self.memory_mb}M"] if self.memory_mb else []),
            *([f"--gres={gres}"] if self.gpus else []),
        )


def partition_offers(
    spec: JobSpec,
    partitions: Sequence[Partition],
    settings: SlurmSettings,
    free_gb: float | None,
    test: Callable[[Sequence[Sequence[str]]], Sequence[StartEstimate]],
) -> tuple[list[Offer], list[str]]:
    """Return an offer for each partition in which Slurm accepts the job, best first, and a line about each
    partition.

    `test`: asks the scheduler, by options of `sbatch`. Low prices come first, then early starts.
    """
    candidates: dict[NodeShare, tuple[Offer, Partition, str]] = {}
    lines: dict[str, str] = {}
    for nodes in sorted(
        partitions, key=lambda one: (not one.is_usable, not one.is_default, one.max_s or math.inf)
    ):
        if settings.partitions and nodes.name not in settings.partitions:
            continue
        share, max_s = _node_share(spec, nodes), nodes.max_s or math.inf
        count = sum(one.nodes for one in partitions if one.name == nodes.name)
        why = _unfit_reason(spec, nodes, share, count)
        # Slurm accepts a job above the limit of its partition, and may never start it (man sbatch, --time).
        if share is None or max_s < spec.limits.hours * 3600:
            lines.setdefault(nodes.name, why)
            continue
        offer = _offer(share, nodes, settings, free_gb)
        job_s = min(lease_of(spec, offer).life_s + _START_S, max_s)
        share = replace(share, minutes=max(1, math.ceil(job_s / 60)))
        candidates.setdefault(share, (replace(offer, id=str(share)), nodes, why))
    starts = test([(*share.options(spec.nodes), *settings.sbatch) for share in candidates])
    ranked = []
    for (offer, nodes, why), start in zip(candidates.values(), starts, strict=True):
        is_whole = all(one.is_usable for one in partitions if one.name == nodes.name)
        # The test says the same of nodes that are drained as of nodes that the partition does not have.
        if start.refusal and (is_whole or why or not any(words in start.refusal for words in _MAY_WAIT)):
            lines.setdefault(nodes.name, f"{start.refusal} ({why})" if why else start.refusal)
            continue
        wait_s = math.inf if start.wait_s is None or not nodes.is_usable else start.wait_s
        text = f"starts in {wait_s / 60:.0f} min" if 60 <= wait_s < math.inf else "starts now"
        text = "waits: nodes are down or drained" if wait_s == math.inf else text
        lines[nodes.name] = text = f"{text} and preempts other jobs" if start.preempts else text
        # A job without GPUs on a node with GPUs would keep others from them, so such nodes come last.
        rank = (offer.usd_per_hour, bool(nodes.gpus) and not offer.gpus, start.preempts, wait_s // 60)
        ranked.append((rank, replace(offer, description=f"{offer.description}; {text}")))
    offers = [offer for _, offer in sorted(ranked, key=itemgetter(0))]
    return offers, [f"{name}: {text}" for name, text in lines.items()]


def price(settings: SlurmSettings, gpus: int) -> float:
    """Return the price of a node with `gpus` GPUs in USD per hour."""
    return settings.usd_per_node_hour + gpus * settings.usd_per_gpu_hour


def _node_share(spec: JobSpec, partition: Partition) -> NodeShare | None:
    """Return the job's share of a node; None when its GPUs are too few or of another model."""
    resources, kind = spec.resources, ""
    cores = max(1, spec.ranks_per_node, resources.cpu_cores)
    part = min(1.0, cores / max(1, partition.cores))
    if resources.gpus:
        fitting = (one for one in partition.gpus if one.count >= resources.gpus and _is_named(one, resources))
        if (gpus := next(fitting, None)) is None:
            return None
        part, kind = resources.gpus / gpus.count, gpus.kind
        cores = max(cores, math.floor(partition.cores * part))
    return NodeShare(
        partition=partition.name,
        cores=cores,
        # Proportional, at least the job's; 0 when neither states any.
        memory_mb=max(math.floor(partition.memory_mb * part), math.ceil(resources.memory_gb * 1000)),
        gpus=resources.gpus,
        kind=kind or _UNNAMED_GPU,
    )


def _unfit_reason(spec: JobSpec, partition: Partition, share: NodeShare | None, nodes: int) -> str:
    """Return what such nodes lack for the job, by their hardware; empty when it fits them. `nodes`: of the
    whole partition."""
    resources = spec.resources
    if share is None:
        kinds = join_names(f"{gpus.count} x {gpus.kind or 'GPU'}" for gpus in partition.gpus) or "none"
        kind = f" of {' or '.join(resources.gpu_names)}" if resources.gpu_names else ""
        return f"{how_many(resources.gpus, 'GPU')}{kind} needed, {kinds} on a node"
    max_hours, memory_gb = (partition.max_s or math.inf) / 3600, partition.memory_mb / 1000 or math.inf
    compared = (
        (spec.limits.hours, max_hours, "{:g} h needed, {:.3g} h allowed"),
        (resources.memory_gb, memory_gb, "{:g} GB of memory needed, {:.0f} on a node"),
        (spec.ranks_per_node, partition.cores, "{} ranks needed, {} cores on a node"),
        (resources.cpu_cores, partition.cores, "{} CPU cores needed, {} on a node"),
        (spec.nodes, nodes, "{} nodes needed, {} in the partition"),
    )
    return next((text.format(needed, there) for needed, there, text in compared if needed > there), "")


def _offer(share: NodeShare, partition: Partition, settings: SlurmSettings, free_gb: float | None) -> Offer:
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
        description=f"Slurm, {share.partition}: {devices}{share.cores} cores{memory}{other}",
    )


def _is_named(gpus: Gpus, resources: Resources) -> bool:
    """Compare names loosely: a site's `a100` may be "A100 SXM4"; the box checks its GPU before training."""
    if not resources.gpu_names or not gpus.kind:
        return True
    shown = gpus.kind.lower()
    numbers = [re.findall(r"[a-z]*\d+[a-z]*", name.lower()) for name in resources.gpu_names]
    return any(any(number in shown for number in found) for found in numbers)
