"""Stages: models that are trained one on top of another, each from the checkpoint of its former stage.

operator   a network that predicts the next frame, or the solution of a steady problem
refine     a diffusion model of the operator's residual: target minus prediction
distill    a consistency model of the refiner: one network call instead of several
steady     a diffusion model of the solutions of a steady problem, given its coefficient
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vastrun.trainer import models
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.stages.losses import ConsistencyLoss, DenoisingLoss, RefiningLoss
from vastrun.trainer.stages.objective import Objective, UnrollLoss
from vastrun.trainer.stages.sampled import DistilledOperator, RefinedOperator, SteadyPrior


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Objective of a stage, and the parts that it takes from the former one (`job/gates.py`)."""

    objective: Callable[[TrainConfig, Sequence[Domain]], Objective]
    inherits: Mapping[str, str] = field(default_factory=dict)
    """Frozen parts: name here to name in that checkpoint."""


STAGES: dict[str, Stage] = {
    "operator": Stage(objective=lambda config, domains: _unrolled(config, domains)),
    "refine": Stage(
        objective=lambda config, domains: RefiningLoss(RefinedOperator(config, domains)),
        inherits={"operator.": ""},
    ),
    "distill": Stage(
        objective=lambda config, domains: ConsistencyLoss(DistilledOperator(config, domains)),
        inherits={"operator.": "operator.", "teacher.": "denoiser."},
    ),
    "steady": Stage(
        objective=lambda config, domains: DenoisingLoss(SteadyPrior(config, domains)),
        inherits={"operator.": ""},
    ),
}


def _unrolled(config: TrainConfig, domains: Sequence[Domain]) -> Objective:
    operator = models.make(config.model, domains)
    if config.freeze == "codec":
        for part in operator.codec:
            part.requires_grad_(False)
    return UnrollLoss(operator, config.objective)


def make(config: TrainConfig, domains: Sequence[Domain]) -> Objective:
    """Make the untrained objective of the job's stage for these tasks."""
    return STAGES[config.stage].objective(config, domains)
