"""Units of the market's numbers: by which size each is known, and how it is made of the assumed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A number of this unit lies from `low` to `high`; `factor` makes one of the assumed unit into it."""

    low: float
    high: float
    factor: float = 1.0


UNITS: Mapping[str, Mapping[str, Unit]] = {
    "gpu_ram": {"MB": Unit(low=1e3, high=1e6), "GB": Unit(low=1, high=1e3, factor=1e-3)},
    "cpu_ram": {"MB": Unit(low=1e3, high=1e8), "GB": Unit(low=1, high=1e3, factor=1e-3)},
    "disk_space": {"GB": Unit(low=1, high=1e5), "MB": Unit(low=1e5, high=1e9, factor=1e3)},
    "reliability": {"fraction": Unit(low=0, high=1), "percent": Unit(low=1, high=100, factor=100)},
    "end_date": {"epoch s": Unit(low=1e9, high=1e11), "epoch ms": Unit(low=1e11, high=1e14, factor=1e3)},
    "compute_cap": {"hundreds": Unit(low=300, high=3000), "plain": Unit(low=3, high=30, factor=1e-2)},
    "cuda_max_good": {"plain": Unit(low=5, high=50), "thousands": Unit(low=5e3, high=5e4, factor=1e3)},
}
"""The first of each is assumed. `down` in Mbit/s or MB/s cannot be told from its size."""


def unit_of(name: str, number: float) -> str:
    """Name the unit of a field by a typical number of it; `other` for one that fits none."""
    return next((unit for unit, span in UNITS[name].items() if span.low <= number <= span.high), "other")
