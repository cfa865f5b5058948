"""Runs of the tests."""

from typing import Any

from tests.jobs import train_job
from tests.offers import rtx_4090
from vastrun.launcher.config import dump_job
from vastrun.launcher.core import Phase, Run


def a_run(**changes: Any) -> Run:
    """A run that is planned on this computer, but for the changes. Its phase began with it."""
    usual = {"id": "calm-heron-3f1a", "job": "demo", "spec_json": "{}", "provider": "local"}
    given = {**usual, "phase": Phase.PLAN, "out_dir": "/o", "created_at": 0.0, **changes}
    return Run(**{"phase_at": given["created_at"], **given})


def ended_run(**changes: Any) -> Run:
    """A run of an hour on Vast that has ended, but for the changes."""
    hour = {"created_at": 1_800_000_000.0, "rented_at": 1_800_000_000.0, "released_at": 1_800_003_600.0}
    offer = rtx_4090(gpus=2, host="2", usd_per_hour=0.5, expected_usd=1.0, loading_usd=0.1)
    about = {"spec_json": dump_job(train_job()), "provider": "vast", "phase": Phase.ENDED, "offer": offer}
    return a_run(**{**hour, **about, "usd_per_hour": 0.5, "started_by": "ada", **changes})
