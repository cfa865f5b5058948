"""Interruptions: what it costs that a machine rented by a bid may be taken away. Pure functions."""

from __future__ import annotations

import math

from launcher.core.job import JobSpec

_MAX_REPEATS = 100.0
"""Tries that are counted at most: without a checkpoint a long job may never be finished."""
_MAX_EXPONENT = 100.0
_USUAL_LOST_HOURS = 0.1
"""Hours of work since the newest checkpoint, where nothing says how often the job saves."""


def again_hours(hours: float, per_hour: float, start_hours: float, lost_hours: float | None) -> float:
    """Return the hours beyond `hours` of training that interruptions are expected to cost.

    `per_hour`: interruptions per hour. `start_hours`: until another machine trains. `lost_hours`: work lost
    at each; None: all, as nothing is saved. Then the sum is that of a Poisson process that begins again at
    each event: (exp(rt) - 1)/r, t being one whole try.
    """
    if lost_hours is not None:
        return per_hour * hours * (start_hours + lost_hours)
    once = start_hours + hours
    expected = math.expm1(min(per_hour * once, _MAX_EXPONENT)) / per_hour if per_hour else once
    return min(expected, _MAX_REPEATS * once) - once


def lost_hours(spec: JobSpec, steps_per_s: float | None) -> float | None:
    """Return the hours of work since the newest checkpoint that are lost on average; None: all of it."""
    if spec.train is not None:
        return spec.train.checkpoint_every / 2 / steps_per_s / 3600 if steps_per_s else _USUAL_LOST_HOURS
    return None if spec.checkpoints.files is None else spec.checkpoints.every_s / 2 / 3600
