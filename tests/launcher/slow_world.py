"""Slow world: a world whose machines train at a tenth of what other hosts of their kind have shown."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.fakebox import Training
from tests.fakes import PRICE
from tests.jobs import train_job
from tests.launcher.world import World
from tests.offers import rtx_4090
from tests.runs import a_run
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Phase, Run
from vastrun.launcher.core.job import JobSpec, Limits

STEPS = 3000
SLOW = Training(seconds=3000.0, steps=STEPS, checkpoint_every=10)
"""One step a second."""
FAST = Training(seconds=300.0, steps=STEPS, checkpoint_every=10)
LIMITS = Limits(hours=5.0, usd=30.0)


def long_job(**changes: Any) -> JobSpec:
    return train_job(steps=STEPS, limits=LIMITS, **changes)


def earlier_runs(
    spec: JobSpec, *, hosts: tuple[str, ...] = ("a", "b", "c"), steps_per_s: float = 10.0
) -> list[Run]:
    """Runs of the same shape, on other hosts of that kind."""
    offer = rtx_4090(gpus=2, host="a", usd_per_hour=PRICE)
    return [
        a_run(
            id=f"former-{n}",
            job="former",
            spec_json=dump_job(replace(spec, name="former", retry={})),
            provider="fake",
            phase=Phase.ENDED,
            created_at=float(n),
            phase_at=0.0,
            offer=offer,
            host=host,
            steps_per_s=steps_per_s,
        )
        for n, host in enumerate(hosts)
    ]


def slow_world(
    folder: Path, spec: JobSpec, *, training: Training = SLOW, former: list[Run] | None = None
) -> World:
    made = World(folder, training=training, spec=spec)
    for run in earlier_runs(spec) if former is None else former:
        made.ledger.add(run)
    return made
