"""Query for a job's offers on Vast, checks of its search, and offers with price and image from its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from vastrun.launcher.core import Offer
from vastrun.launcher.core.gpus import is_same_name, min_usable_gb, spellings
from vastrun.launcher.core.job import JobSpec, Resources
from vastrun.launcher.core.market import SearchFinding
from vastrun.launcher.decisions.history import NOTHING_AVOIDED, AvoidedHosts
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.image.lock import ARCHITECTURE, Capability, ImageRequirements, Lock, LockedImage
from vastrun.launcher.providers.vast import calls
from vastrun.launcher.providers.vast.api import VastApi
from vastrun.launcher.providers.vast.rows import OfferRow

START_S = 3600.0
"""Seconds by which a contract must exceed the job's limit, for the rental and the start."""
MIN_DIRECT_PORTS = 1
"""Ports for SSH. Without one, only Vast's proxy reaches a machine, and some proxies never work."""
_MIN_COMPUTE_CAP = 350
"""Sent with `cuda_max_good`, which alone found no H100 and no H200 (gpuhunt #142, 2025). No CUDA since 11 has
code for older GPUs."""
_ON_DEMAND = ", on demand: a bid is expected to cost more"
_BID_MARGIN = 1.2
"""Bid as a multiple of the lowest bid that wins now."""
MAX_OFFERS = 1000
"""Limit of one search."""
DEFAULT_OFFERS = 64
"""Vast's default limit; ASAP, a third-party client, saw it with a higher limit, too (2026-09)."""
_MAX_REASONS, _MAX_REASON = 4, 60


def query(spec: JobSpec, *, bid: bool, avoid: AvoidedHosts = NOTHING_AVOIDED) -> dict[str, dict[str, Any]]:
    """Return the job's limits as filters of Vast's search. Vast may ignore filters: the funnel checks again.

    `bid`: search for bids; else on demand. `avoid`: what the answer should not contain: it is limited in
    length.
    """
    resources = spec.resources
    filters: dict[str, dict[str, Any]] = {
        **verified_and_free(),
        "num_gpus": {"eq": max(1, resources.gpus)},
        "disk_space": {"gte": resources.disk_gb},
        "reliability": {"gte": resources.reliability},
        "direct_port_count": {"gte": MIN_DIRECT_PORTS},
    }
    # A limit in USD may shorten the lease, so that a shorter contract suffices: the funnel checks it.
    if spec.limits.usd is None:
        filters["duration"] = {"gte": spec.limits.hours * 3600 + START_S}
    if spec.nodes > 1:
        filters["cluster_id"] = {"neq": None}
    if resources.gpu_names:
        filters["gpu_name"] = {"in": all_spellings(resources.gpu_names)}
    if resources.min_gpu_gb:
        # MB that a program can use: up to a tenth less than the size in the name of a GPU.
        filters["gpu_ram"] = {"gte": min_usable_gb(resources.min_gpu_gb) * 1000}
    if resources.cuda:
        filters["cuda_max_good"] = {"gte": resources.cuda}
        filters["compute_cap"] = {"gte": _MIN_COMPUTE_CAP}
    if resources.regions:
        # The filter compares codes of countries; a row has a text such as "Texas, US".
        filters["geolocation"] = {"in": [region.upper() for region in resources.regions]}
    if spec.limits.usd_per_hour is not None:
        filters["min_bid" if bid else "dph_total"] = {"lte": spec.limits.usd_per_hour}
    columns = {"machine_id": avoid.machines, "host_id": avoid.accounts, "public_ipaddr": avoid.addresses}
    return (
        filters
        | _optional(resources)
        | {name: {"notin": sorted(values)[:100]} for name, values in columns.items() if values}
    )


def _optional(resources: Resources) -> dict[str, dict[str, Any]]:
    """Return filters for a job's optional requirements."""
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
    """Return all spellings of the GPU names that Vast may use."""
    return [spelling for name in names for spelling in spellings(name)]


def verified_and_free() -> dict[str, dict[str, Any]]:
    """Return the filters of all searches: verified and free machines."""
    # The search is sent without the defaults of the SDK, which adds others to a dict than to a text.
    return {
        "verified": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
    }


def make_offer(
    row: OfferRow, spec: JobSpec, lock: Lock, *, on_demand_usd: float | None = None
) -> Offer | None:
    """Return the row as an offer, at the price of its bid or on demand.

    None when the price exceeds the job's limit, or a bid would cost more than `on_demand_usd` per hour, the
    price of the GPUs on demand, if known.
    """
    bid = None
    price = row.usd_per_hour
    if spec.resources.interruptible and row.is_bid:
        cap = spec.limits.usd_per_hour
        storage_usd = row.extras.storage_usd_per_hour
        caps = (None if cap is None else cap - storage_usd, on_demand_usd)
        bid = min([row.min_bid_usd * _BID_MARGIN, *(each for each in caps if each is not None)])
        # Rounded down, so that the bid stays within the caps.
        bid = int(bid * 10_000) / 10_000
        if row.min_bid_usd <= 0 or bid < row.min_bid_usd * 1.05:
            return None
        # A bid buys the GPUs; the disk is billed on top of it.
        price = bid + storage_usd
    if spec.limits.usd_per_hour is not None and price > spec.limits.usd_per_hour:
        return None
    image = image_for(row, spec, lock)
    return Offer(
        id=row.id,
        host=row.machine_id,
        host_account=row.host_id,
        address=row.address,
        gpu_name=row.gpu_name,
        gpus=row.gpus,
        gpu_memory_gb=row.gpu_memory_gb,
        disk_gb=row.disk_gb,
        usd_per_hour=price,
        description=f"{row.gpus} x {row.gpu_name} {row.gpu_memory_gb:.0f} GB, {row.place or 'somewhere'}, "
        f"reliability {row.reliability:.1%}, {row.down_mbps:.0f} Mbit/s, machine {row.machine_id}"
        f"{'' if row.is_bid or not spec.resources.interruptible else _ON_DEMAND}",
        extras=row.extras,
        network=row.cluster if spec.nodes > 1 else "",
        bid_usd_per_hour=bid,
        image=spec.image or (image.reference if image else None),
        image_whole=image is not None and image.whole and spec.image is None,
        cuda=row.cuda,
    )


def image_for(row: OfferRow, spec: JobSpec, lock: Lock) -> LockedImage | None:
    """Return the first image of the lock that runs on the machine; None when none does."""
    return lock.fitting(_capability(row), gpus=spec.resources.gpus)


def runs_image(row: OfferRow, spec: JobSpec, lock: Lock) -> bool:
    """Return whether the job's image, or one of the lock, can run on the machine, as far as known."""
    if spec.image is None:
        return image_for(row, spec, lock) is not None
    image, gpus = ImageRequirements.of(spec.image, lock), spec.resources.gpus
    if not image.architecture and row.cpu_arch != ARCHITECTURE:
        # Few images support another architecture: only a job that names these GPUs is assumed to have one.
        return any(is_same_name(row.gpu_name, name) for name in spec.resources.gpu_names)
    return image.fits(_capability(row), gpus=gpus)


def image_needs(spec: JobSpec, lock: Lock) -> str:
    """Return the image's requirements as a text."""
    if spec.image is None:
        return f"vastrun's images need {lock.needs}"
    return str(ImageRequirements.of(spec.image, lock))


def image_size_gb(row: OfferRow, spec: JobSpec, lock: Lock) -> float | None:
    """Return the size of the image in GB; None when unknown."""
    image = None if spec.image else image_for(row, spec, lock)
    return image.size_mb / 1000 if image and image.size_mb else None


def _capability(row: OfferRow) -> Capability:
    return Capability(cuda_max=row.cuda, compute_cap=row.compute_cap, architecture=row.cpu_arch)


def search_findings(api: VastApi) -> Iterator[SearchFinding]:
    """Search the market once, and yield whether its offers can be read."""
    cheapest = ("dph_total", "asc")
    answers = api.once(
        calls.search(verified_and_free(), kind="on-demand", disk_gb=8.0, order=cheapest, limit=MAX_OFFERS)
    )
    rows = (answers[0].fields or {}).get("offers") if answers and answers[0].status == 200 else None
    if not isinstance(rows, list):
        yield SearchFinding(name="search", text="the search was not answered", is_expected=None)
        return
    text = f"{len(rows)} offers with a limit of {MAX_OFFERS:,}"
    if len(rows) == DEFAULT_OFFERS:
        text += f": Vast returns at most {DEFAULT_OFFERS} at once; vastrun continues the search by price"
    yield SearchFinding(name="search", text=text, is_expected=bool(rows))
    faults = Counter(one_line(fault)[:_MAX_REASON] for row in rows if (fault := OfferRow.fault(row)))
    unreadable = sum(faults.values())
    endless = sum(isinstance(row, dict) and row.get("end_date", row) is None for row in rows)
    text = f"{len(rows) - unreadable} of {len(rows)} offers can be read"
    if faults:
        text += ": " + ", ".join(f"{count} with {why}" for why, count in faults.most_common(_MAX_REASONS))
    text += f"; {endless} have no end_date" if endless else ""
    yield SearchFinding(name="offers", text=text, is_expected=unreadable == 0)
