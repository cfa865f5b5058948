"""Stages: what is trained upon what. Each but the first begins from the checkpoint of another one.

operator   a network that predicts the next frame, or the solution of a steady problem
refine     a diffusion model of what the operator leaves: target minus prediction
distill    a consistency model of the refiner: one call of a network instead of several
steady     a diffusion model of the solutions of a steady problem, given its coefficient
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vastrun.contract.config import TrainConfig
from vastrun.trainer import models
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.stages.losses import ConsistencyLoss, DenoisingLoss, RefiningLoss
from vastrun.trainer.stages.objective import Objective, UnrollLoss
from vastrun.trainer.stages.sampled import DistilledOperator, RefinedOperator, SteadyPrior


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One line of the list."""

    objective: Callable[[TrainConfig, Sequence[Domain]], Objective]
    former: str | None = None
    """The stage whose checkpoint it begins from."""
    inherits: Mapping[str, str] = field(default_factory=dict)
    """Parts that do not learn, each with the name it has in that checkpoint."""


STAGES: dict[str, Stage] = {
    "operator": Stage(objective=lambda config, domains: _unrolled(config, domains)),
    "refine": Stage(
        objective=lambda config, domains: RefiningLoss(RefinedOperator(config, domains)),
        former="operator",
        inherits={"operator.": ""},
    ),
    "distill": Stage(
        objective=lambda config, domains: ConsistencyLoss(DistilledOperator(config, domains)),
        former="refine",
        inherits={"operator.": "operator.", "teacher.": "denoiser."},
    ),
    "steady": Stage(
        objective=lambda config, domains: DenoisingLoss(SteadyPrior(config, domains)),
        former="operator",
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
    """Make what the stage of the job makes small, for these tasks; nothing in it has learned yet."""
    return STAGES[config.stage].objective(config, domains)
