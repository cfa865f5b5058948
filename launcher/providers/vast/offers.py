"""From a job to Vast's market and back: the query, and a row as an offer, with its price and its image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vastrun.launcher.core import Offer
from vastrun.launcher.core.gpus import is_same_name, min_usable_gb, spellings
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.image.lock import ARCHITECTURE, Capability, Lock, LockedImage
from vastrun.launcher.image.requirements import ImageRequirements
from vastrun.launcher.providers.vast.rows import OfferRow

START_S = 3600.0
"""A machine must be ours for this much longer than the job may take: renting and loading come first."""
MIN_DIRECT_PORTS = 1
"""For SSH. Without one only Vast's proxy leads to a machine, and some proxies refuse for all of its life."""
_MIN_COMPUTE_CAP = 350
"""Sent with `cuda_max_good`, which alone found no H100 and no H200 (gpuhunt #142, 2025). No CUDA since 11 has
code for older GPUs."""
_BID_MARGIN = 1.2
"""What we bid, as a multiple of the lowest bid that wins now."""
_LEAST_MARGIN = 1.05
_ON_DEMAND = ", on demand: a bid is expected to cost more"


def query(spec: JobSpec, *, bid: bool) -> dict[str, dict[str, Any]]:
    """Return the job's limits as Vast's filters. Vast may ignore any of them: the funnel checks again.

    `bid`: for offers that are bid for; else on demand.
    """
    wanted = spec.resources
    filters: dict[str, dict[str, Any]] = {
        **verified_and_free(),
        "num_gpus": {"eq": max(1, wanted.gpus)},
        "disk_space": {"gte": wanted.disk_gb},
        "reliability": {"gte": wanted.reliability},
        "direct_port_count": {"gte": MIN_DIRECT_PORTS},
    }
    # With a limit on money the lease may end sooner, and a shorter contract may do: the funnel knows.
    if spec.limits.usd is None:
        filters["duration"] = {"gte": spec.limits.hours * 3600 + START_S}
    if spec.nodes > 1:
        filters["cluster_id"] = {"neq": None}
    if wanted.gpu_names:
        filters["gpu_name"] = {"in": all_spellings(wanted.gpu_names)}
    if wanted.min_gpu_gb:
        filters["gpu_ram"] = {"gte": min_usable_gb(wanted.min_gpu_gb) * 1000}
    if wanted.cuda:
        filters["cuda_max_good"] = {"gte": wanted.cuda}
        filters["compute_cap"] = {"gte": _MIN_COMPUTE_CAP}
    if wanted.regions:
        filters["geolocation"] = {"in": [region.upper() for region in wanted.regions]}
    if spec.limits.usd_per_hour is not None:
        column = "min_bid" if bid else "dph_total"
        filters[column] = {"lte": spec.limits.usd_per_hour}
    return filters | _optional(wanted)


def _optional(resources: Resources) -> dict[str, dict[str, Any]]:
    """Filters for what a job may ask for besides."""
    minimums = {
        "inet_down": resources.down_mbps,
        "inet_up": resources.up_mbps,
        "disk_bw": resources.disk_mbps,
        "cpu_cores_effective": resources.cpu_cores,
    }
    filters: dict[str, dict[str, Any]] = {
        name: {"gte": minimum} for name, minimum in minimums.items() if minimum
    }
    if resources.nvlink:
        filters["bw_nvlink"] = {"gt": 0}
    if resources.datacenter:
        filters["datacenter"] = {"eq": True}
    if resources.static_ip:
        filters["static_ip"] = {"eq": True}
    return filters


def all_spellings(names: Sequence[str]) -> list[str]:
    """Return the names of GPUs as Vast may write them."""
    return [spelling for name in names for spelling in spellings(name)]


def verified_and_free() -> dict[str, dict[str, Any]]:
    """Return what every search asks for: machines that Vast verified and that are free."""
    return {
        "verified": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
    }


def offer_of(row: OfferRow, spec: JobSpec, lock: Lock, *, on_demand_usd: float | None = None) -> Offer | None:
    """Return the row as an offer at the price that we would pay.

    None where that is over the job's limit, or where a bid would cost more than the GPUs do on demand:
    `on_demand_usd` per hour, if known.
    """
    bid = None
    price = row.usd_per_hour
    if spec.resources.interruptible and row.is_bid:
        bid = _bid(row, spec.limits.usd_per_hour, on_demand_usd)
        if bid is None:
            return None
        # A bid buys the GPUs; the disk is billed on top of it.
        price = bid + row.extras.storage_usd_per_hour
    if spec.limits.usd_per_hour is not None and price > spec.limits.usd_per_hour:
        return None
    image = image_for(row, spec, lock)
    return Offer(
        id=row.id,
        host=row.machine_id,
        gpu_name=row.gpu_name,
        gpus=row.gpus,
        gpu_memory_gb=row.gpu_memory_gb,
        disk_gb=row.disk_gb,
        usd_per_hour=price,
        description=_describe(row) + ("" if row.is_bid or not spec.resources.interruptible else _ON_DEMAND),
        extras=row.extras,
        network=row.cluster if spec.nodes > 1 else "",
        bid_usd_per_hour=bid,
        image=spec.image or (image.reference if image else None),
        image_whole=image is not None and image.whole and spec.image is None,
        cuda=row.cuda,
    )


def _bid(row: OfferRow, cap: float | None, on_demand_usd: float | None) -> float | None:
    """Above the floor by a margin and within the caps; None where they leave too little room."""
    if row.min_bid_usd <= 0:
        return None
    bid = row.min_bid_usd * _BID_MARGIN
    if cap is not None:
        bid = min(bid, cap - row.extras.storage_usd_per_hour)
    if on_demand_usd is not None:
        bid = min(bid, on_demand_usd)
    # Rounded down, so that the cap holds.
    bid = int(bid * 10_000) / 10_000
    return bid if bid >= row.min_bid_usd * _LEAST_MARGIN else None


def _describe(row: OfferRow) -> str:
    return (
        f"{row.gpus} x {row.gpu_name} {row.gpu_memory_gb:.0f} GB, {row.place or 'somewhere'}, "
        f"reliability {row.reliability:.1%}, {row.down_mbps:.0f} Mbit/s, machine {row.machine_id}"
    )


def image_for(row: OfferRow, spec: JobSpec, lock: Lock) -> LockedImage | None:
    """Return the first of the lock that runs there; None where none does."""
    return lock.fitting(_capability(row), gpus=spec.resources.gpus)


def runs_image(row: OfferRow, spec: JobSpec, lock: Lock) -> bool:
    """Tell whether the job's own image, or one of the lock, runs there, as far as that is known."""
    if spec.image is None:
        return image_for(row, spec, lock) is not None
    image, gpus = ImageRequirements.of(spec.image, lock), spec.resources.gpus
    if not image.architecture and row.cpu_arch != ARCHITECTURE:
        # Few images are for another architecture: only a job that asks for these GPUs knows that its own is.
        return any(is_same_name(row.gpu_name, name) for name in spec.resources.gpu_names)
    return not image.misfit(_capability(row), gpus=gpus)


def image_needs(spec: JobSpec, lock: Lock) -> str:
    """Return what a machine must have for the image, in words."""
    if spec.image is None:
        return f"ours need {lock.needs}"
    return str(ImageRequirements.of(spec.image, lock))


def fetched_gb(row: OfferRow, spec: JobSpec, lock: Lock) -> float | None:
    """Return how large the image is; None where nobody knows."""
    image = None if spec.image else image_for(row, spec, lock)
    return image.size_mb / 1000 if image and image.size_mb else None


def _capability(row: OfferRow) -> Capability:
    return Capability(cuda_max=row.cuda, compute_cap=row.compute_cap, architecture=row.cpu_arch)
