"""Hard limits of a job, checked on every offer, and the funnel of how many each limit removes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vastrun.contract.texts import how_many
from vastrun.contract.workload import Workloads
from vastrun.launcher.core.gpus import has_memory, is_same_name, nearest_names
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import Constraint, Relaxation
from vastrun.launcher.decisions.workload import is_too_small, min_gb
from vastrun.launcher.gate import caps
from vastrun.launcher.image.lock import Lock
from vastrun.launcher.providers.vast.offers import (
    MIN_DIRECT_PORTS,
    START_S,
    image_needs,
    make_offer,
    runs_image,
)
from vastrun.launcher.providers.vast.rows import OfferRow

NODES = "nodes"


@dataclass(frozen=True)
class HardLimit:
    """One hard limit: its name in the job file, its text, and its check of a row."""

    name: str
    text: str
    passes: Callable[[OfferRow], bool]
    is_option: bool = True
    """True when a job file can relax it."""

    def removing(self, offers: int) -> Constraint:
        """Return the limit with the number of offers that it removes."""
        return Constraint(name=self.name, text=self.text, removed=offers)


@dataclass(frozen=True, kw_only=True)
class Funnel:
    """Result of the hard limits: removed and remaining offers."""

    offers: int
    removed: tuple[Constraint, ...]
    """Constraints in order that removed offers."""
    left: tuple[OfferRow, ...]
    relaxed: tuple[Relaxation, ...]
    """Offers left if only that constraint were dropped; largest gain first."""
    strictest: Constraint | None
    """Constraint that most offers fail, with their number; None when all pass."""
    unreadable: int
    truncated: bool
    """True when Vast returned only the cheapest offers, and there may be more."""

    def __str__(self) -> str:
        parts = [f"the {self.offers} cheapest offers" if self.truncated else f"{self.offers} offers"]
        parts += [f"{one.removed} fail {one.name} ({one.text})" for one in self.removed]
        parts += [f"{self.unreadable} cannot be read"] if self.unreadable else []
        line = ", ".join([*parts, f"{len(self.left)} left"])
        gains = [f"{one.name} to get {one.left}" for one in self.relaxed[:3]]
        return f"{line}; relax {' or '.join(gains)}" if gains else line


def funnel(
    rows: Sequence[Any],
    spec: JobSpec,
    lock: Lock,
    now: float,
    workloads: Workloads | None = None,
    *,
    truncated: bool = False,
) -> Funnel:
    """Apply all hard limits to the rows.

    `workloads`: the estimate. `truncated`: there are more rows, and these are the cheapest.
    """
    read = [row for row in map(OfferRow.of, rows) if row is not None]
    market = {row.gpu_name for row in read}
    constraints = (*_constraints(spec, lock, now, market), *_gpu_memory(spec, workloads))
    failed = [[constraint for constraint in constraints if not constraint.passes(row)] for row in read]
    left = tuple(row for row, faults in zip(read, failed, strict=True) if not faults)
    first = Counter(faults[0] for faults in failed if faults)
    # Offers that fail a single constraint are those that relaxing it would add.
    alone = Counter(faults[0] for faults in failed if len(faults) == 1)
    failing = Counter(fault for faults in failed for fault in faults)
    return Funnel(
        offers=len(rows),
        removed=tuple(one.removing(first[one]) for one in constraints if one in first),
        left=left,
        relaxed=tuple(
            Relaxation(name=one.name, left=len(left) + gained)
            for one, gained in alone.most_common()
            if one.is_option
        ),
        strictest=next((one.removing(count) for one, count in failing.most_common(1)), None),
        unreadable=len(rows) - len(read),
        truncated=truncated,
    )


def _constraints(spec: JobSpec, lock: Lock, now: float, market: Collection[str]) -> Iterator[HardLimit]:
    yield from _machine(spec, lock, market)
    down, up = spec.resources.down_mbps, spec.resources.up_mbps
    yield HardLimit("down_mbps", f"{down:g} Mbit/s", lambda row: row.down_mbps >= down)
    yield HardLimit("up_mbps", f"{up:g} Mbit/s", lambda row: row.up_mbps >= up)
    min_reliability, regions = (
        spec.resources.reliability,
        tuple(region.upper() for region in spec.resources.regions),
    )
    yield HardLimit("reliability", f"{min_reliability:g}", lambda row: row.reliability >= min_reliability)
    yield HardLimit("regions", _any_of(regions), lambda row: not regions or row.country in regions)
    yield HardLimit(
        "datacenter", "hosts of datacenters", lambda row: row.datacenter or not spec.resources.datacenter
    )
    yield HardLimit("static_ip", "a fixed address", lambda row: row.static_ip or not spec.resources.static_ip)
    yield HardLimit(
        "verification", "verified and free", lambda row: row.verified and row.rentable, is_option=False
    )
    yield HardLimit(
        "direct_ports",
        f"{MIN_DIRECT_PORTS} for SSH",
        lambda row: row.direct_ports is None or row.direct_ports >= MIN_DIRECT_PORTS,
        is_option=False,
    )
    yield from _terms(spec, lock, now)
    # The last one: offers that only this constraint removes would fit a job of one node.
    yield HardLimit(NODES, "in a cluster", lambda row: spec.nodes == 1 or bool(row.cluster))


def _machine(spec: JobSpec, lock: Lock, market: Collection[str]) -> Iterator[HardLimit]:
    needs, gpus = spec.resources, max(1, spec.resources.gpus)
    names = needs.gpu_names
    yield HardLimit("gpus", how_many(gpus, "GPU"), lambda row: row.gpus == gpus)
    is_known = any(_is_one_of(name, names) for name in market)
    near = [] if is_known else [each for name in names for each in nearest_names(name, market)]
    yield HardLimit(
        "gpu_names",
        f"{_any_of(names)}; the market has {_any_of(near)}" if near else _any_of(names),
        lambda row: not names or _is_one_of(row.gpu_name, names),
    )
    memory_gb = needs.min_gpu_gb
    yield HardLimit(
        "gpu_memory_gb", f"{memory_gb:g} GB", lambda row: has_memory(row.gpu_memory_gb, memory_gb)
    )
    yield HardLimit("nvlink", "NVLink", lambda row: row.nvlink_gbps > 0 or not needs.nvlink)
    yield HardLimit("cpu_cores", f"{needs.cpu_cores} cores", lambda row: row.cpu_cores >= needs.cpu_cores)
    yield HardLimit("memory_gb", f"{needs.memory_gb:g} GB", lambda row: row.memory_gb >= needs.memory_gb)
    yield HardLimit("disk_gb", f"{needs.disk_gb:g} GB", lambda row: row.disk_gb >= needs.disk_gb)
    yield HardLimit("disk_mbps", f"{needs.disk_mbps:g} MB/s", lambda row: row.disk_mbps >= needs.disk_mbps)
    yield HardLimit("cuda", f"{needs.cuda:g}", lambda row: row.cuda >= needs.cuda)
    # The check of a machine against its offer reads nvidia-smi, which AMD lacks.
    yield HardLimit(
        "gpu_arch", "NVIDIA", lambda row: needs.gpus == 0 or row.gpu_arch in ("nvidia", ""), is_option=False
    )
    yield HardLimit("image", image_needs(spec, lock), lambda row: runs_image(row, spec, lock))


def _gpu_memory(spec: JobSpec, workloads: Workloads | None) -> Iterator[HardLimit]:
    """Yield the limit that removes GPUs too small for the estimated memory."""
    if workloads is None or spec.resources.gpus == 0:
        return
    largest = min_gb(workloads, spec, caps.GPU_GB)
    text = f"needs {largest:.3g} GB a GPU" if largest is not None else ""
    yield HardLimit("memory", text, lambda row: not is_too_small(workloads, spec, row.gpu_memory_gb))


def _terms(spec: JobSpec, lock: Lock, now: float) -> Iterator[HardLimit]:
    cap = spec.limits.usd_per_hour

    def lasts(row: OfferRow) -> bool:
        offer = make_offer(row, spec, lock)
        life_s = policy.lease_of(spec, offer).life_s if offer else 0.0
        return not row.end_date or row.end_date >= now + life_s + START_S

    text = "no bid is possible" if cap is None else f"${cap:g}"
    yield HardLimit("usd_per_hour", text, lambda row: make_offer(row, spec, lock) is not None)
    yield HardLimit("hours", f"{spec.limits.hours:g} h before the host wants it back", lasts)


def _is_one_of(gpu_name: str, names: Sequence[str]) -> bool:
    return any(is_same_name(gpu_name, name) for name in names)


def _any_of(words: Sequence[str]) -> str:
    return " or ".join(words) or "any"
