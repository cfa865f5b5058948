"""Runs of the tests."""

from __future__ import annotations

from dataclasses import replace

from tests.jobs import train_job
from tests.offers import rtx_4090
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Phase, Run


def ended_run(**changes: object) -> Run:
    """A run of an hour on Vast that has ended, but for the changes."""
    run = Run(
        id="run",
        job="grid",
        spec_json=dump_job(train_job()),
        provider="vast",
        phase=Phase.ENDED,
        out_dir="/home/ada/runs/run",
        created_at=1_800_000_000.0,
        phase_at=1_800_000_000.0,
        offer=rtx_4090(gpus=2, host="2", usd_per_hour=0.5, expected_usd=1.0, loading_usd=0.1),
        rented_at=1_800_000_000.0,
        released_at=1_800_003_600.0,
        usd_per_hour=0.5,
        started_by="ada",
    )
    return replace(run, **changes)  # type: ignore[arg-type]
