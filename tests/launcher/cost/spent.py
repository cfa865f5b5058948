"""Runs that cost something, for the tests of what was spent."""

from typing import Any

from tests.jobs import train_job
from tests.offers import rtx_4090
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Event, ExtraRates, Meter, Phase, Run

BEGAN = 1_800_000_000.0
HOUR_S = 3600.0
USD_PER_HOUR = 3.6
"""0.1 of it for storage."""
DOWN_USD_PER_GB = 0.01


def run(
    run_id: str = "calm-heron-3f1a", *, hours: float = 10.0, tags: tuple[str, ...] = (), **changes: Any
) -> Run:
    """A run that succeeded on two GPUs, rented for so long from BEGAN on, but for the changes."""
    offer = rtx_4090(gpus=2, usd_per_hour=USD_PER_HOUR)
    extras = ExtraRates(storage_usd_per_hour=0.1, down_usd_per_gb=DOWN_USD_PER_GB)
    end = BEGAN + hours * HOUR_S
    values: dict[str, Any] = {
        "id": run_id,
        "job": "demo",
        "spec_json": dump_job(train_job(tags=tags)),
        "provider": "vast",
        "phase": Phase.ENDED,
        "out_dir": "/nowhere",
        "created_at": BEGAN - 10,
        "phase_at": end,
        "offer": offer,
        "instance_id": "7",
        "host": "m1",
        "usd_per_hour": USD_PER_HOUR,
        "rented_at": BEGAN,
        "released_at": end,
        "meter": Meter(extras=extras, began_at=BEGAN, down_gb=10.0, given_back_at=end),
        "ended_at": end,
        "step": 1000,
    }
    return Run(**(values | changes))


def line(phase: Phase, usd: float, *, hours: float = 0.0, run_id: str = "calm-heron-3f1a") -> Event:
    """A line of its diary: so much was spent by then."""
    return Event(run_id=run_id, at=BEGAN + hours * HOUR_S, phase=phase, text="so it is", usd=usd)
