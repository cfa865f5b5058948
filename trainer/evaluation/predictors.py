"""Predictors: the model, used in several ways, and baselines.

The prior of a sample is known from the training set and the sample's conditions alone.

Shapes, here and in the whole package: B samples, N of the test set, T frames to predict, K channels, X points
by axis, C conditions, R rings of wavenumbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.data.chunks import ranges, rows_at_once
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.evaluation.learned_baselines import (
    KERNEL_RIDGE,
    LINEAR_MAP,
    LearnedBaseline,
    fit_baseline,
)
from vastrun.trainer.evaluation.training_set import read_frames
from vastrun.trainer.models.operator import Operator, Scale

MAX_PARAMETERS = 16
"""Largest number of parameters to score separately; more different conditions belong to single samples."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Statistics of the training set of one task."""

    mean_conditions: Tensor
    """(C,): mean of the conditions."""
    conditions_differ: bool
    parameters: Tensor
    """(G, C): the different conditions, or only their mean when there are too many."""
    means: Tensor
    """(G, K, *X), or (1, K, *1): mean target over the samples with these conditions."""
    baseline: LearnedBaseline | None = None
    """Baseline that was fitted to the training set at each of `parameters`; None: not fitted."""

    def mean_of(self, conditions: Tensor) -> Tensor:
        """Return the mean target of the training conditions nearest to `conditions` (B, C): (B, K, *X)."""
        return self.means[self._nearest(conditions).clamp_max(len(self.means) - 1)]

    def learned(self, u: Tensor, conditions: Tensor) -> Tensor:
        """Return the baseline's target of fields `u` (B, K, *X) at the nearest training conditions."""
        assert self.baseline is not None, "a predictor that needs a baseline is not applicable without one"
        return self.baseline.predict(u, self._nearest(conditions))

    def _nearest(self, conditions: Tensor) -> Tensor:
        return torch.cdist(conditions, self.parameters).argmin(dim=1)


def compute_prior(task: Task, scale: Scale, ranks: Ranks) -> Prior:
    """Compute a task's prior. For a steady problem all ranks together read the training set once."""
    device = scale.mean.device
    conditions = task.train.conditions.to(device)
    overall = conditions.mean(dim=0)
    parameters = conditions.unique(dim=0) if conditions.shape[1] else overall[None]
    differ = len(parameters) > 1
    if len(parameters) > MAX_PARAMETERS:
        parameters = overall[None]
    means = _mean_fields(task, parameters, ranks).to(device) if task.train.steady else scale.mean[1:]
    return Prior(mean_conditions=overall, conditions_differ=differ, parameters=parameters, means=means)


def with_baseline(prior: Prior, task: Task, beat: Callable[[], None]) -> Prior:
    """Return the prior with a baseline that is fitted to the training set. All ranks fit the same one."""
    return replace(prior, baseline=fit_baseline(task, prior.parameters, prior.means.device, beat))


def _mean_fields(task: Task, parameters: Tensor, ranks: Ranks) -> Tensor:
    """Return the mean targets (G, K, *X); every rank reads its share."""
    train, rank = task.train, ranks.rank
    sums = torch.zeros(len(parameters), train.channels, *train.grid, dtype=torch.float64)
    counts = torch.zeros(len(parameters), dtype=torch.float64)
    share = np.arange(rank.rank, len(train), rank.world_size)
    for rows in ranges(len(share), rows_at_once(2 * sums[0].numel(), max_rows=64)):
        windows = read_frames(task, share[rows.start : rows.stop], 2)
        group = torch.cdist(windows.conditions.cpu(), parameters.cpu()).argmin(dim=1)
        sums.index_add_(0, group, windows.fields[:, 1].double().cpu())
        counts += group.bincount(minlength=len(parameters))
    counts = ranks.all_reduce_sum(counts).reshape(-1, *(1,) * (sums.ndim - 1))
    return (ranks.all_reduce_sum(sums) / counts).float()


@dataclass(frozen=True, kw_only=True)
class SampleBatch:
    """Batch of samples of one task."""

    operator: Operator
    task: int
    conditions: Tensor
    """(B, C)"""
    prior: Prior

    def predict(self, u: Tensor, conditions: Tensor) -> Tensor:
        """Return the model's prediction from fields (B, K, *X)."""
        prediction: Tensor = self.operator(u, conditions, self.task)
        return prediction


Predict = Callable[[SampleBatch, Tensor, Tensor], Tensor]
"""Predicts the next frame from the predictor's own previous frame, and from the true previous frame."""


PREDICTORS: dict[str, Predict] = {
    "rollout": lambda case, own, _: case.predict(own, case.conditions),
    "one_step": lambda case, _, before: case.predict(before, case.conditions),
    "persistence": lambda _, own, __: own,
    "one_step_persistence": lambda _, __, before: before,
    "spatial_mean": lambda _, own, __: own.mean(dim=tuple(range(2, own.ndim)), keepdim=True).expand_as(own),
    "training_mean": lambda case, own, _: case.prior.mean_of(case.conditions).expand_as(own),
    LINEAR_MAP: lambda case, own, _: case.prior.learned(own, case.conditions),
    KERNEL_RIDGE: lambda case, own, _: case.prior.learned(own, case.conditions),
    "blind": lambda case, own, _: case.predict(own, case.prior.mean_conditions.expand_as(case.conditions)),
}
"""rollout  each frame from the model's own prediction of the previous frame
one_step    each frame from the true previous frame
blind       as rollout, with the training set's mean conditions instead of the sample's own
The others are baselines: see docs/evaluation.md."""

_STEADY_PREDICTORS = ("rollout", "training_mean", KERNEL_RIDGE, "blind")


def applicable_predictors(prior: Prior, *, steady: bool) -> tuple[str, ...]:
    """Return the predictors that make sense here: a steady problem has a single step, and no persistence."""
    return tuple(
        name
        for name in PREDICTORS
        if (name in _STEADY_PREDICTORS if steady else name != KERNEL_RIDGE)
        and (prior.baseline is not None or name not in (LINEAR_MAP, KERNEL_RIDGE))
        and (prior.conditions_differ or name != "blind")
    )
