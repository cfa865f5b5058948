"""Funnel: what the limits of three jobs leave of a recorded market, limit by limit.

The market is that of 2026-08-17 (tests/launcher/providers/vast/recorded_market.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.jobs import train_job
from tests.launcher.providers.vast.recorded_market import recorded_offers
from vastrun.launcher.core.job import JobSpec, Limits, Resources
from vastrun.launcher.image.lock import shipped_lock
from vastrun.launcher.providers.vast.funnel import Funnel, funnel

_A100 = ("A100 SXM4", "A100 PCIE")
JOBS: Mapping[str, Resources] = {
    "1 x RTX 4090": Resources(gpus=1, gpu_names=("RTX 4090",), disk_gb=20),
    "1 x A100": Resources(gpus=1, gpu_names=_A100, disk_gb=20),
    "8 x A100": Resources(gpus=8, gpu_names=_A100, disk_gb=20),
}
LIMITS = {
    "gpus": "another number of GPUs",
    "gpu_names": "another GPU",
    "disk_gb": "`disk_gb: 20`",
    "image": "image: CUDA 12.6, or 13.0 on Blackwell",
    "reliability": "`reliability: 0.95`",
}
_FURTHER: Mapping[str, Mapping[str, Any]] = {
    "`datacenter: true`": {"datacenter": True},
    "`static_ip: true`": {"static_ip": True},
    "`cpu_cores: 16`": {"cpu_cores": 16},
    "`up_mbps: 500`": {"up_mbps": 500.0},
    "`down_mbps: 500`": {"down_mbps": 500.0},
    "`disk_gb: 200`": {"disk_gb": 200.0},
}


def run() -> None:
    """Print the table of docs/cost.md."""
    print("\n".join(table()))


def table() -> list[str]:
    """Return the lines of the table: what each limit removes, what is left, and what one more would leave."""
    funnels = [seen(wanted) for wanted in JOBS.values()]
    lines = [
        _line("", *JOBS),
        "|---|" + "--:|" * len(JOBS),
        _line("offers", *(one.offers for one in funnels)),
    ]
    lines.append(_line("cannot be read", *(one.unreadable for one in funnels)))
    for limit in LIMITS:
        removed = [{found.name: found.removed for found in one.removed} for one in funnels]
        lines.append(_line(LIMITS[limit], *(-counts.get(limit, 0) for counts in removed)))
    lines.append(_line("left", *(f"**{len(one.left)}**" for one in funnels)))
    for name, changes in _FURTHER.items():
        left = [len(seen(replace(wanted, **changes)).left) for wanted in JOBS.values()]
        lines.append(_line(f"left with {name}", *left))
    return lines


def seen(wanted: Resources) -> Funnel:
    """Return what is left of the recorded market for a job of ten hours."""
    return funnel(recorded_offers(), _job(wanted), shipped_lock(), now=0.0)


def _job(wanted: Resources) -> JobSpec:
    return train_job(resources=wanted, limits=Limits(hours=10))


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
