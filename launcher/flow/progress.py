"""Progress: how far a training is and what it is doing, as a look at its box shows it. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from launcher.core import Progress, Sighting
from launcher.core.job import JobSpec
from launcher.flow.pace import Pace

_TRAIN = "50-train"
PREPARING: Mapping[str, str] = {
    "": "starting the program",
    "start": "preparing the ranks",
    "data": "loading data",
    "compile": "compiling the model",
}
"""What a rank does before its first step, by its heartbeat's phase, in this order; empty: it never beat."""
_BETWEEN: Mapping[str, str] = {
    "eval": "evaluating",
    "checkpoint": "saving a checkpoint",
    "done": "finishing",
}


def progress_of(sighting: Sighting, spec: JobSpec, pace: Pace, now: float) -> Progress:
    """What the user is shown."""
    planned = planned_steps(spec)
    return Progress(
        activity=activity_of(sighting, spec),
        step=sighting.step if knows_step(sighting) else None,
        steps=last_step(spec, sighting) or None,
        loss=sighting.loss,
        left_s=pace.left_s(planned, now) if planned < math.inf else None,
    )


def planned_steps(spec: JobSpec) -> float:
    """The last step of the training, as far as the job says: a box may boast of more."""
    if spec.train is not None:
        return spec.train.steps
    return spec.success.steps if spec.success and spec.success.steps else math.inf


def last_step(spec: JobSpec, sighting: Sighting) -> int:
    """As the job says, else the box; 0: nobody knows it."""
    planned = planned_steps(spec)
    return int(planned) if planned < math.inf else sighting.steps


def activity_of(sighting: Sighting, spec: JobSpec) -> str:
    """What is being done besides steps, in words; empty: steps are done, or nothing runs."""
    if sighting.box != "running":
        return ""
    if sighting.onstart_step != _TRAIN:
        return sighting.onstart_step
    if len(sighting.ranks) < spec.world_size:
        return "importing torch, starting the ranks"
    phases = {rank.phase for rank in sighting.ranks}
    if phases == {""} and not awaits_beats(spec):
        return "running"
    for phase, words in PREPARING.items():
        if phase in phases and (phase != "data" or sighting.step == 0):
            return words
    return next((words for phase, words in _BETWEEN.items() if phase in phases), "")


def knows_step(sighting: Sighting) -> bool:
    """Whether any rank tells where it is."""
    return sighting.step > 0 or any(rank.phase for rank in sighting.ranks)


def awaits_beats(spec: JobSpec) -> bool:
    """Whether a success needs the steps that ranks tell."""
    return spec.train is not None or (spec.success is not None and spec.success.steps is not None)
