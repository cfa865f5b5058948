"""Learned baselines: a linear map, and training trajectories, copied or interpolated.

A model is worth its training only where it is better. Every rank fits the same one, from the training set
alone, in float64, without random numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.data.samples import ranges, rows_at_once
from vastrun.trainer.loading.training_set import read_frames, read_groups, spaced
from vastrun.trainer.models.linear_map import LinearMap, Modes, fit_linear_map

_MAX_VALUES = 1 << 27
"""Largest number of values that are read for all parameters together."""
_MAX_SAMPLES = 2048
"""Largest number of trajectories that are compared."""
_MAX_MEASURED = 512
"""Largest number of trajectories by which the degrees of freedom are measured."""


@torch.no_grad()
def fit_baseline(task: Task, parameters: Tensor, beat: Callable[[], None]) -> LinearMap | None:
    """Fit the map at each parameter (G, C); None for a steady problem. All ranks beat equally often."""
    train = task.train
    if train.steady:
        return None
    groups = read_groups(task, parameters, values=_MAX_VALUES, beat=beat)
    batches = ((fields.to(parameters.device).double() for fields in group) for group in groups)
    return fit_linear_map(
        Modes(grid=tuple(train.grid), periodic=train.symmetry == "shift"), parameters, batches
    )


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """Training trajectories whose first frame and parameters are nearest to those of a sample."""

    task: Task
    rows: NDArray[np.int64]
    """(N,): numbers of the training samples that are compared."""
    moments: tuple[Tensor, Tensor]
    """(F,) each: centre and scale of first frames and conditions."""
    inputs: Tensor
    """(N, F): scaled first frames and conditions, in float64."""
    freedom: float
    """Degrees of freedom of the inputs, by the distances to two neighbours (Facco et al. 2017)."""

    @property
    def order(self) -> int | None:
        """Return the number of neighbours to interpolate between; None: the inputs have too many freedoms."""
        return None if self.freedom > _MAX_FREEDOM else round(self.freedom) + 1

    def predict(self, fields: Tensor, conditions: Tensor, order: int) -> Tensor:
        """Return the trajectories (B, T, K, *X) of samples that begin at `fields` (B, K, *X).

        They are the sum of those of the `order` nearest, with weights that add up to one and that give the
        inputs best. With one they are copied.
        """
        inputs = (_inputs_of(fields, conditions) - self.moments[0]) / self.moments[1]
        nearest = torch.cdist(inputs, self.inputs).topk(order, largest=False).indices
        apart = self.inputs[nearest] - inputs[:, None]
        products = apart @ apart.mT
        ridge = _RIDGE_OF_WEIGHTS * products.diagonal(dim1=1, dim2=2).sum(dim=1) + torch.finfo().tiny
        products.diagonal(dim1=1, dim2=2).add_(ridge[:, None])
        weights = torch.linalg.solve(products, torch.ones_like(products[:, :, :1]))
        weights = (weights / weights.sum(dim=1, keepdim=True)).float()
        found = torch.zeros(())
        for place in range(order):
            rows = self.rows[nearest[:, place].cpu().numpy()]
            copied = read_frames(self.task, rows, self.task.train.frames).fields.to(fields.device)
            found = copied * weights[:, place].reshape(-1, *[1] * (copied.ndim - 1)) + found.to(copied)
        return found


_MAX_FREEDOM = 3.5
_RIDGE_OF_WEIGHTS = 1e-10
"""Share of the squared distances that is added, for neighbours that are the same."""


@torch.no_grad()
def find_neighbours(task: Task, device: torch.device, beat: Callable[[], None]) -> Neighbours:
    """Read the inputs of the training set, evenly spaced where it is large. All ranks beat equally often."""
    train = task.train
    values = train.channels * prod(train.grid)
    rows = spaced(len(train), min(_MAX_SAMPLES, _MAX_INPUT_VALUES // values))
    parts = []
    for chunk in ranges(len(rows), rows_at_once(2 * values, max_rows=64)):
        beat()
        read = read_frames(task, rows[chunk.start : chunk.stop], 2)
        parts.append(_inputs_of(read.fields[:, 0].to(device), read.conditions.to(device)))
    inputs = torch.cat(parts)
    moments = inputs.mean(dim=0), torch.ones_like(inputs[0])
    inputs -= moments[0]
    # The first frame as a whole counts like one condition.
    for own in (slice(values), *(slice(place, place + 1) for place in range(values, inputs.shape[1]))):
        size = inputs[:, own].square().sum(dim=1).mean().sqrt()
        moments[1][own] = size if size > 0 else 1.0
    inputs /= moments[1]
    freedom = _freedom(inputs[:_MAX_MEASURED])
    return Neighbours(task=task, rows=rows, moments=moments, inputs=inputs, freedom=freedom)


def _freedom(inputs: Tensor) -> float:
    """Return the degrees of freedom of inputs (N, F); infinite for too few."""
    if len(inputs) < _MIN_FREEDOM_SAMPLES:
        return torch.inf
    _, first, second = torch.cdist(inputs, inputs).topk(3, largest=False).values.unbind(1)
    logs = (second / first.clamp_min(torch.finfo().tiny)).log().mean().item()
    return 1 / logs if logs > 0 else torch.inf


_MAX_INPUT_VALUES = 1 << 24
_MIN_FREEDOM_SAMPLES = 8


def _inputs_of(fields: Tensor, conditions: Tensor) -> Tensor:
    return torch.cat([fields.flatten(1), conditions], dim=1).double()
