"""Offers as others recorded them (recordings/offers.yaml), and what they mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

RECORDINGS = Path(__file__).with_name("recordings")


@dataclass(frozen=True, kw_only=True)
class RecordedOffer:
    """A recorded row, what is read of it, and the verdict for jobs that ask for such resources."""

    row: Mapping[str, Any]
    fields: Mapping[str, Any]
    """Attributes of its OfferRow."""
    fails: Mapping[str, Sequence[str]]
    """Limits that it fails, by the job of JOBS; the first is what removes it. None: it is left."""
    seen_at: float
    """Epoch seconds, between its contract's begin and end."""


JOBS: Mapping[str, Mapping[str, Any]] = {
    "RTX 4090": {"gpu_names": ("RTX_4090",)},
    "A100 of 40 GB": {"gpu_names": ("A100 SXM4",), "gpu_memory_gb": 40},
    "A100 of 80 GB": {"gpu_names": ("A100 SXM4",), "gpu_memory_gb": 80},
    "8 A100 with NVLink": {"gpus": 8, "gpu_names": ("A100_SXM4",), "nvlink": True, "disk_gb": 500},
    "datacenter": {"datacenter": True},
    "fixed address": {"static_ip": True, "up_mbps": 500, "cpu_cores": 8},
    "fast disk": {"disk_mbps": 1000},
}
"""Resources of the jobs. All of them ask for the default reliability of 0.95."""

OFFERS: Mapping[str, RecordedOffer] = {
    name: RecordedOffer(**offer)
    for name, offer in yaml.safe_load((RECORDINGS / "offers.yaml").read_text(encoding="utf-8")).items()
}
