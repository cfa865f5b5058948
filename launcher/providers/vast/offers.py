"""From a job to Vast's market: the query, every hard limit checked again, and the funnel that they make."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from launcher import policy
from launcher.job import JobSpec
from launcher.model import Offer
from launcher.providers.vast.images import image_for
from launcher.providers.vast.rows import OfferRow

BID_MARGIN = 1.2
"""What we bid, as a multiple of the lowest bid that wins now."""
_LEAST_MARGIN = 1.05
_START_S = 3600.0
"""A machine must be ours for this much longer than the job may take: renting and loading come first."""


@dataclass(frozen=True)
class Hurdle:
    """One hard limit: its name in the job file, how it reads, and which rows pass."""

    name: str
    text: str
    passes: Callable[[OfferRow], bool]


@dataclass(frozen=True, kw_only=True)
class Funnel:
    """What the hard limits leave of the market."""

    offers: int
    removed: tuple[tuple[Hurdle, int], ...]
    """Each hurdle that removed some, in order, and how many."""
    left: tuple[OfferRow, ...]
    relaxed: tuple[tuple[Hurdle, int], ...]
    """How many would be left without that hurdle alone, where that is more; the most first."""
    unreadable: int = 0

    def __str__(self) -> str:
        parts = [f"{self.offers} offers"]
        parts += [f"{count} fail {hurdle.name} ({hurdle.text})" for hurdle, count in self.removed]
        parts += [f"{self.unreadable} cannot be read"] if self.unreadable else []
        line = ", ".join([*parts, f"{len(self.left)} left"])
        gains = [f"{hurdle.name} to get {count}" for hurdle, count in self.relaxed[:3]]
        return f"{line}; relax {' or '.join(gains)}" if gains else line


def query(spec: JobSpec) -> dict[str, dict[str, Any]]:
    """The job's hard limits as Vast's filters. Vast may ignore any of them: `funnel` checks again."""
    wanted = spec.resources
    filters: dict[str, dict[str, Any]] = {
        **verified_and_free(),
        "num_gpus": {"eq": max(1, wanted.gpus)},
        "disk_space": {"gte": wanted.disk_gb},
        "reliability": {"gte": wanted.reliability},
    }
    if spec.limits.usd is None:
        filters["duration"] = {"gte": spec.limits.hours * 3600 + _START_S}
    if wanted.gpu_names:
        filters["gpu_name"] = {"in": list(wanted.gpu_names)}
    if wanted.gpu_memory_gb:
        filters["gpu_ram"] = {"gte": wanted.gpu_memory_gb * 1000}
    if wanted.cuda:
        filters["cuda_max_good"] = {"gte": wanted.cuda}
    if wanted.regions:
        filters["geolocation"] = {"in": [region.upper() for region in wanted.regions]}
    if spec.limits.usd_per_hour is not None:
        column = "min_bid" if wanted.interruptible else "dph_total"
        filters[column] = {"lte": spec.limits.usd_per_hour}
    return filters


def verified_and_free() -> dict[str, dict[str, Any]]:
    """What every search asks for: machines that Vast verified and that are free."""
    return {
        "verified": {"eq": True},
        "external": {"eq": False},
        "rentable": {"eq": True},
        "rented": {"eq": False},
    }


def hurdles(spec: JobSpec, now: float) -> tuple[Hurdle, ...]:
    """Every hard limit of the job, and Vast's own conditions."""
    wanted, gpus = spec.resources, max(1, spec.resources.gpus)
    names = {name.casefold() for name in wanted.gpu_names}
    regions = {region.upper() for region in wanted.regions}
    cap = spec.limits.usd_per_hour

    def lasts(row: OfferRow) -> bool:
        offer = offer_of(row, spec)
        life_s = policy.lease_of(spec, offer).life_s if offer else 0.0
        return row.end_date >= now + life_s + _START_S

    return (
        Hurdle("gpus", "1 GPU" if gpus == 1 else f"{gpus} GPUs", lambda row: row.gpus == gpus),
        Hurdle(
            "gpu_names",
            " or ".join(wanted.gpu_names) or "any",
            lambda row: not names or row.gpu_name.casefold() in names,
        ),
        Hurdle(
            "gpu_memory_gb",
            f"{wanted.gpu_memory_gb:g} GB",
            lambda row: row.gpu_memory_gb >= wanted.gpu_memory_gb,
        ),
        Hurdle("memory_gb", f"{wanted.memory_gb:g} GB", lambda row: row.memory_gb >= wanted.memory_gb),
        Hurdle("disk_gb", f"{wanted.disk_gb:g} GB", lambda row: row.disk_gb >= wanted.disk_gb),
        Hurdle("cuda", f"{wanted.cuda:g}", lambda row: row.cuda >= wanted.cuda),
        Hurdle(
            "image",
            "ours need CUDA 12.6, or 13.0 on Blackwell",
            lambda row: bool(spec.image or image_for(row)),
        ),
        Hurdle("reliability", f"{wanted.reliability:g}", lambda row: row.reliability >= wanted.reliability),
        Hurdle(
            "regions",
            " or ".join(sorted(regions)) or "any",
            lambda row: not regions or row.country in regions,
        ),
        Hurdle("verification", "verified and free", lambda row: row.verified and row.rentable),
        Hurdle(
            "usd_per_hour",
            "no limit" if cap is None else f"${cap:g}",
            lambda row: offer_of(row, spec) is not None,
        ),
        Hurdle("hours", f"{spec.limits.hours:g} h before the host wants it back", lasts),
    )


def funnel(rows: Sequence[Any], spec: JobSpec, now: float) -> Funnel:
    """What is left of the rows, and what each hurdle took."""
    read = [OfferRow.of(row) for row in rows]
    all_rows = [row for row in read if row is not None]
    failed = [[h for h in hurdles(spec, now) if not h.passes(row)] for row in all_rows]
    firsts = [faults[0].name for faults in failed if faults]
    alone = [faults[0].name for faults in failed if len(faults) == 1]
    left = tuple(row for row, faults in zip(all_rows, failed, strict=True) if not faults)
    every = hurdles(spec, now)
    return Funnel(
        offers=len(rows),
        removed=tuple((h, firsts.count(h.name)) for h in every if h.name in firsts),
        left=left,
        relaxed=tuple(
            sorted(
                ((h, len(left) + alone.count(h.name)) for h in every if h.name in alone),
                key=lambda gain: -gain[1],
            )
        ),
        unreadable=len(rows) - len(all_rows),
    )


def offer_of(row: OfferRow, spec: JobSpec) -> Offer | None:
    """The row as an offer, at the price that we would pay; None where that is over the job's limit."""
    bid = None
    price = row.usd_per_hour
    if spec.resources.interruptible:
        bid = _bid(row, spec.limits.usd_per_hour)
        if bid is None:
            return None
        price = bid + row.storage_usd_per_hour
    if spec.limits.usd_per_hour is not None and price > spec.limits.usd_per_hour:
        return None
    return Offer(
        id=row.id,
        host=row.machine_id,
        gpu_name=row.gpu_name,
        gpus=row.gpus,
        gpu_memory_gb=row.gpu_memory_gb,
        disk_gb=row.disk_gb,
        usd_per_hour=price,
        description=_describe(row),
        bid_usd_per_hour=bid,
        image=image_for(row),
    )


def _bid(row: OfferRow, cap: float | None) -> float | None:
    """Above the floor by a margin and within the cap; None where the cap leaves too little room."""
    if row.min_bid_usd <= 0:
        return None
    bid = row.min_bid_usd * BID_MARGIN
    if cap is not None:
        bid = min(bid, cap - row.storage_usd_per_hour)
    # Rounded down, so that the cap holds.
    bid = int(bid * 10_000) / 10_000
    return bid if bid >= row.min_bid_usd * _LEAST_MARGIN else None


def _describe(row: OfferRow) -> str:
    return (
        f"{row.gpus} x {row.gpu_name} {row.gpu_memory_gb:.0f} GB, {row.place or 'somewhere'}, "
        f"reliability {row.reliability:.1%}, {row.down_mbps:.0f} Mbit/s, machine {row.machine_id}"
    )
