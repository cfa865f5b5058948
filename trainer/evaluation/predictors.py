"""Predictors: the model, asked in several ways, and floors: what predicts without having learned anything.

The prior is what the training set alone says of a sample, before anybody looks at it.

Shapes, here and in the whole package: B samples, N of the test set, T frames to predict, K channels, X points
by axis, C conditions, R rings of wavenumbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.models.operator import Operator, Scale
from vastrun.trainer.sampling.windows import WindowSpace, draw_indices

MOST_PARAMETERS = 16
"""More different conditions are no parameters to tell apart, but something of each sample's own."""
_READ_AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Of one task."""

    usual_conditions: Tensor
    """(C,): the mean."""
    conditions_differ: bool
    parameters: Tensor
    """(G, C): the different conditions, or the mean alone when they are too many."""
    means: Tensor
    """(G, K, *X), or (1, K, *1): what is asked for, in the mean over the samples of these conditions."""

    def mean_of(self, conditions: Tensor) -> Tensor:
        """Return the mean of the nearest in the training set to samples of conditions (B, C): (B, K, *X)."""
        nearest = torch.cdist(conditions, self.parameters).argmin(dim=1)
        return self.means[nearest.clamp_max(len(self.means) - 1)]


def prior_of(task: Task, scale: Scale, ranks: Ranks) -> Prior:
    """Return a task's prior. A steady problem's training set is read once for it, by all ranks together."""
    device = scale.mean.device
    conditions = task.train.conditions.to(device)
    usual = conditions.mean(dim=0)
    parameters = conditions.unique(dim=0) if conditions.shape[1] else usual[None]
    differ = len(parameters) > 1
    if len(parameters) > MOST_PARAMETERS:
        parameters = usual[None]
    means = _mean_fields(task, parameters, ranks).to(device) if task.train.steady else scale.mean[1:]
    return Prior(usual_conditions=usual, conditions_differ=differ, parameters=parameters, means=means)


def _mean_fields(task: Task, parameters: Tensor, ranks: Ranks) -> Tensor:
    """Return the means of what is asked for: (G, K, *X); every rank reads its share."""
    train, rank = task.train, ranks.rank
    sums = torch.zeros(len(parameters), train.channels, *train.grid, dtype=torch.float64)
    counts = torch.zeros(len(parameters), dtype=torch.float64)
    share = np.arange(rank.rank, len(train), rank.world_size)
    for first in range(0, len(share), _READ_AT_ONCE):
        windows = _as_they_are(task, share[first : first + _READ_AT_ONCE])
        group = torch.cdist(windows.conditions.cpu(), parameters.cpu()).argmin(dim=1)
        sums.index_add_(0, group, windows.fields[:, 1].double().cpu())
        counts += group.bincount(minlength=len(parameters))
    counts = ranks.all_reduce_sum(counts).reshape(-1, *(1,) * (sums.ndim - 1))
    return (ranks.all_reduce_sum(sums) / counts).float()


def _as_they_are(task: Task, rows: NDArray[np.int64]) -> Windows:
    """Read the first two frames of training samples, by number."""
    train = task.train
    space = WindowSpace(
        trajectories=len(train),
        frames=train.frames,
        grid=tuple(train.grid),
        channels=train.channels,
        unroll=1,
    )
    drawn = draw_indices(0, 0, batch=len(rows), noise=0.0, space=space)
    frames = np.tile(np.arange(2), (len(rows), 1))
    return task.batch(0, replace(drawn, trajectory=rows, frames=frames))


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


PREDICTORS: dict[str, Predict] = {
    "rollout": lambda case, own, _: case.told(own, case.conditions),
    "one_step": lambda case, _, before: case.told(before, case.conditions),
    "persistence": lambda _, own, __: own,
    "one_step_persistence": lambda _, __, before: before,
    "spatial_mean": lambda _, own, __: own.mean(dim=tuple(range(2, own.ndim)), keepdim=True).expand_as(own),
    "training_mean": lambda case, own, _: case.prior.mean_of(case.conditions).expand_as(own),
    "blind": lambda case, own, _: case.told(own, case.prior.usual_conditions.expand_as(case.conditions)),
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
