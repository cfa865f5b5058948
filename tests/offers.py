"""Offers of the tests."""

from dataclasses import replace

from vastrun.launcher.core import Offer


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
