"""Learned baselines: a linear map, or kernel ridge, fitted to the same training set in seconds.

A model is worth its training only where it is better. Every rank fits the same one, from the training set
alone, in float64, without random numbers. At parameters that were not trained the nearest trained ones count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.evaluation.kernel_ridge import MAX_SAMPLES, KernelRidge, fit_kernel_ridge
from vastrun.trainer.evaluation.linear_map import Modes, fit_linear_map
from vastrun.trainer.evaluation.training_set import read_frames
from vastrun.trainer.sampling.windows import image_count, image_points

LINEAR_MAP, KERNEL_RIDGE = "linear_map", "kernel_ridge"
_MAX_VALUES = 1 << 27
"""Largest number of values that are read for all parameters together."""
_BATCH_VALUES = 1 << 21


class LearnedBaseline(Protocol):
    """Fitted predictor."""

    def predict(self, fields: Tensor, group: Tensor) -> Tensor:
        """Return the targets of fields (B, K, *X), with the parameters `group` (B,) by number."""
        ...


@dataclass(frozen=True, kw_only=True)
class KernelRidges:
    """Kernel ridge at each parameter."""

    fits: Sequence[KernelRidge]

    def predict(self, fields: Tensor, group: Tensor) -> Tensor:
        found = torch.empty_like(fields, dtype=torch.float64)
        for number in group.unique().tolist():
            rows = group == number
            found[rows] = self.fits[number].predict(fields[rows])
        return found


@torch.no_grad()
def fit_baseline(
    task: Task, parameters: Tensor, device: torch.device, beat: Callable[[], None]
) -> LearnedBaseline:
    """Fit the baseline of a task at each of its parameters (G, C). All ranks call `beat` equally often."""
    train = task.train
    nearest = torch.cdist(train.conditions.cpu(), parameters.cpu()).argmin(dim=1).numpy()
    groups = [np.flatnonzero(nearest == number) for number in range(len(parameters))]
    frames = 2 if train.steady else train.frames
    max_rows = max(1, _MAX_VALUES // (len(groups) * frames * train.channels * prod(train.grid)))
    max_rows = min(max_rows, MAX_SAMPLES) if train.steady else max_rows
    batches = (
        (fields.to(device).double() for fields in _read(task, _spaced(rows, max_rows), frames, beat))
        for rows in groups
    )
    if not train.steady:
        modes = Modes(grid=tuple(train.grid), periodic=train.symmetry == "shift")
        return fit_linear_map(modes, batches)
    fits = []
    for group in batches:
        fields = torch.cat(list(group))
        fits.append(fit_kernel_ridge(fields[:, 0], fields[:, 1], partial(_images, task)))
        beat()
    return KernelRidges(fits=fits)


def _spaced(rows: NDArray[np.int64], max_rows: int) -> NDArray[np.int64]:
    """Return at most `max_rows` rows, evenly spaced."""
    return rows[np.linspace(0, len(rows) - 1, min(max_rows, len(rows))).round().astype(int)]


def _read(task: Task, rows: NDArray[np.int64], frames: int, beat: Callable[[], None]) -> Iterator[Tensor]:
    """Yield the first frames of training samples: (B, T, K, *X)."""
    batch = max(1, _BATCH_VALUES // (frames * task.train.channels * prod(task.train.grid)))
    for first in range(0, len(rows), batch):
        beat()
        yield read_frames(task, rows[first : first + batch], frames).fields


def _images(task: Task, fields: Tensor) -> Tensor:
    """Return all images of fields (B, K, *X) under the symmetry of a square; else the fields themselves."""
    if task.train.symmetry != "square":
        return fields
    grid = tuple(fields.shape[2:])
    points = torch.from_numpy(image_points("square", grid, np.arange(image_count("square", grid))))
    return fields.flatten(2)[:, :, points.to(fields.device)].movedim(2, 1).flatten(0, 1).unflatten(2, grid)
