"""Offers of the tests, and orders of them."""

from dataclasses import replace
from typing import Any

from vastrun.launcher.core import Offer, RentalOrder


def rtx_4090(gpus: int = 1, **changes: object) -> Offer:
    """An offer of so many RTX 4090 at USD 0.36 per hour, but for the changes."""
    offer = Offer(
        id="1",
        host="m1",
        gpu_name="RTX 4090",
        gpus=gpus,
        gpu_memory_gb=24.0,
        disk_gb=100.0,
        usd_per_hour=0.36,
        description=f"{gpus} x RTX 4090",
    )
    return replace(offer, **changes)  # type: ignore[arg-type]


def rental_order(offer: Offer, **changes: Any) -> RentalOrder:
    """An order of that offer for a run, but for the changes."""
    about = {"label": "vastrun-calm-heron-3f1a", "image": "pytorch/pytorch:2.13.0", "onstart": "true\n"}
    return RentalOrder(**{"offer": offer, "disk_gb": 10.0, "env": {}, "max_usd": 0.0, **about, **changes})
