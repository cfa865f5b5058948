"""Holders: runs that hold a machine for others, and the holder of a run's slot. Pure functions."""

from __future__ import annotations

from vastrun.launcher.config import read_job
from vastrun.launcher.core import Run
from vastrun.launcher.core.labels import POOL, slot_id_of


def is_holder(run: Run) -> bool:
    """Return whether the run holds a machine for others instead of running a job."""
    # Few runs hold machines, and to read a job takes a while.
    return '"hold": null' not in run.spec_json and read_job(run.spec_json).hold is not None


def holder_of(run: Run) -> str | None:
    """Return the id of the run that holds the machine of this run's slot; None: it has no slot."""
    if run.provider != POOL:
        return None
    found = slot_id_of(run.instance_id or "")
    if found is not None:
        return found.holder
    if run.offer is not None:
        return run.offer.id
    # Before there is an offer: the run on whose machine it requests a slot; None: any.
    return None if '"slot_on": null' in run.spec_json else read_job(run.spec_json).slot_on
