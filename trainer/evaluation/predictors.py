"""Predictors: the model, asked in several ways, and floors: what predicts without having learned anything.

Shapes, here and in the whole package: B samples, N of the test set, T frames to predict, K channels, X points
by axis, C conditions, R rings of wavenumbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from trainer.evaluation.prior import Prior
from trainer.models.operator import Operator


@dataclass(frozen=True, kw_only=True)
class Case:
    """Some samples of one task."""

    operator: Operator
    task: int
    conditions: Tensor
    """(B, C)"""
    prior: Prior

    def told(self, u: Tensor, conditions: Tensor) -> Tensor:
        """Return what the model makes of fields (B, K, *X)."""
        prediction: Tensor = self.operator(u, conditions, self.task)
        return prediction


Predict = Callable[[Case, Tensor, Tensor], Tensor]
"""The next frame, by what the same predictor said of the frame before, and by what that really was."""


def _rollout(case: Case, own: Tensor, before: Tensor) -> Tensor:  # noqa: ARG001
    return case.told(own, case.conditions)


def _one_step(case: Case, own: Tensor, before: Tensor) -> Tensor:  # noqa: ARG001
    return case.told(before, case.conditions)


def _blind(case: Case, own: Tensor, before: Tensor) -> Tensor:  # noqa: ARG001
    return case.told(own, case.prior.usual_conditions.expand_as(case.conditions))


def _persistence(case: Case, own: Tensor, before: Tensor) -> Tensor:  # noqa: ARG001
    return own


def _one_step_persistence(case: Case, own: Tensor, before: Tensor) -> Tensor:  # noqa: ARG001
    return before


def _spatial_mean(case: Case, own: Tensor, before: Tensor) -> Tensor:  # noqa: ARG001
    return own.mean(dim=tuple(range(2, own.ndim)), keepdim=True).expand_as(own)


def _training_mean(case: Case, own: Tensor, before: Tensor) -> Tensor:  # noqa: ARG001
    return case.prior.mean_of(case.conditions).expand_as(own)


PREDICTORS: dict[str, Predict] = {
    "rollout": _rollout,
    "one_step": _one_step,
    "persistence": _persistence,
    "one_step_persistence": _one_step_persistence,
    "spatial_mean": _spatial_mean,
    "training_mean": _training_mean,
    "blind": _blind,
}
"""rollout  each frame from the model's own prediction of the frame before
one_step    each frame from the true one before it
blind       as rollout, but the model is told the training set's mean conditions instead of the sample's own
the others  are no model: see docs/evaluation.md"""

_OF_STEADY = ("rollout", "training_mean", "blind")
_WHERE_CONDITIONS_DIFFER = ("blind",)


def predictors_of(prior: Prior, *, steady: bool) -> tuple[str, ...]:
    """Return those that say something here: without time there is one step only, and nothing persists."""
    return tuple(
        name
        for name in PREDICTORS
        if (name in _OF_STEADY or not steady)
        and (prior.conditions_differ or name not in _WHERE_CONDITIONS_DIFFER)
    )
