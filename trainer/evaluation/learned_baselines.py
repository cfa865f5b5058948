"""Learned baselines: a linear map, kernel ridge, and training trajectories, copied or interpolated.

A model is worth its training only where it is better. Every rank fits the same one, from the training set
alone, in float64, without random numbers.

Kernel ridge is the solution of a steady problem as a smooth function of its coefficient:

    u(a) = mean + sum over training samples of k(|a - a_i|) w_i

Its weights have a closed form. The kernel, its width, the smoothing of the coefficients before they are
compared, and the ridge are those with the lowest leave-one-out error on the training set, which has a closed
form, too (Allen 1974). Where the problem has the symmetry of a square, the images of the samples are used.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer.data import Task
from vastrun.trainer.data.chunks import ranges, rows_at_once
from vastrun.trainer.loading.training_set import read_frames, read_groups, spaced
from vastrun.trainer.models.linear_map import LinearMap, Modes, fit_linear_map
from vastrun.trainer.sampling.windows import image_count, image_points

LINEAR_MAP, KERNEL_RIDGE = "linear_map", "kernel_ridge"
_MAX_VALUES = 1 << 27
"""Largest number of values that are read for all parameters together."""


MAX_SAMPLES = 2048
"""Largest number of samples, images included: the system is solved directly."""
_MAX_SELECTION = 512
"""Largest number of samples by which kernel and ridge are chosen."""
_MAX_COMPONENTS = 32
"""Principal components of the solutions by which kernel and ridge are chosen."""

_KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "gaussian": lambda distance: torch.exp(-distance.square() / 2),
    "exponential": lambda distance: torch.exp(-distance),
}
_SMOOTHING = (0.0, 1.0, 2.0)
"""Powers of 1 / (1 + wavenumber) that coefficients are multiplied with, mode by mode."""
_WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Widths of the kernel, in median distances of the training samples."""
_RIDGES = tuple(10.0**power for power in range(-8, 0))


@dataclass(frozen=True, kw_only=True)
class KernelChoice:
    """Kernel, width, smoothing and ridge."""

    kernel: str
    smoothing: float
    width: float
    """Width of the kernel in median distances between training samples."""
    ridge: float


@dataclass(frozen=True, kw_only=True)
class KernelRidge:
    """Fitted map from inputs to targets at one parameter, in float64."""

    choice: KernelChoice
    weight: Tensor
    """(M,): factor of each mode of an input before the distances are computed."""
    modes: Modes
    scale: float
    """Width of the kernel."""
    features: Tensor
    """(N, F): smoothed inputs of the training samples."""
    mean: Tensor
    """(P,): mean target."""
    coefficients: Tensor
    """(N, P)"""

    def predict(self, inputs: Tensor) -> Tensor:
        """Return the targets of inputs (B, K, *X)."""
        features = _features(self.modes, inputs.double(), self.weight)
        kernel = _KERNELS[self.choice.kernel](torch.cdist(features, self.features) / self.scale)
        return (self.mean + kernel @ self.coefficients).reshape(inputs.shape)


def fit_kernel_ridge(inputs: Tensor, targets: Tensor, images: Callable[[Tensor], Tensor]) -> KernelRidge:
    """Fit inputs to targets, both (N, K, *X). `images` returns all symmetric images of fields, (B, ...)."""
    inputs, targets = inputs.double(), targets.double()
    modes = Modes(grid=tuple(inputs.shape[2:]), periodic=False)
    choice = _choose(modes, inputs[:_MAX_SELECTION], targets[:_MAX_SELECTION])
    every = images(inputs[:1])
    if len(every) * len(inputs) <= MAX_SAMPLES:
        inputs, targets = images(inputs), images(targets)
    weight = _weight(modes, choice.smoothing, inputs)
    features = _features(modes, inputs, weight)
    distances = torch.cdist(features, features)
    scale = choice.width * _median(distances)
    kernel = _KERNELS[choice.kernel](distances / scale)
    mean = targets.flatten(1).mean(dim=0)
    kernel.diagonal().add_(choice.ridge)
    coefficients = torch.cholesky_solve(targets.flatten(1) - mean, torch.linalg.cholesky(kernel))
    return KernelRidge(
        choice=choice,
        weight=weight,
        modes=modes,
        scale=scale,
        features=features,
        mean=mean,
        coefficients=coefficients,
    )


def _choose(modes: Modes, inputs: Tensor, targets: Tensor) -> KernelChoice:
    """Return the choice with the lowest leave-one-out error on the principal components of the targets."""
    flat = targets.flatten(1)
    centred = flat - flat.mean(dim=0)
    values, vectors = torch.linalg.eigh(centred @ centred.T)
    # The components of the samples: the same distances as those of the targets, in fewer numbers.
    components = (vectors * values.clamp_min(0).sqrt())[:, -_MAX_COMPONENTS:]
    best, lowest = None, torch.inf
    for smoothing in _SMOOTHING:
        features = _features(modes, inputs, _weight(modes, smoothing, inputs))
        distances = torch.cdist(features, features)
        median = _median(distances)
        for kernel, width in itertools.product(_KERNELS, _WIDTHS):
            eigenvalues, basis = torch.linalg.eigh(_KERNELS[kernel](distances / (width * median)))
            rotated = basis.T @ components
            for ridge in _RIDGES:
                inverse = 1 / (eigenvalues.clamp_min(0) + ridge)
                residual = basis @ (inverse[:, None] * rotated)
                error = (residual / (basis.square() @ inverse)[:, None]).square().sum().item()
                if error < lowest:
                    best, lowest = (kernel, smoothing, width, ridge), error
    assert best is not None, "the errors are finite"
    kernel, smoothing, width, ridge = best
    return KernelChoice(kernel=kernel, smoothing=smoothing, width=width, ridge=ridge)


def _features(modes: Modes, inputs: Tensor, weight: Tensor) -> Tensor:
    """Return the weighted modes of inputs: (B, K * M)."""
    return (modes.transform(inputs) * weight).flatten(1)


def _weight(modes: Modes, smoothing: float, like: Tensor) -> Tensor:
    """Return the factor of each mode by its wavenumber: (M,)."""
    axes = [torch.arange(points, dtype=like.dtype, device=like.device) for points in modes.grid]
    wavenumber = torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(dim=0).sqrt()
    return (1 + wavenumber.flatten()) ** -smoothing


def _median(distances: Tensor) -> float:
    """Return the median distance of two different samples; 1 when there are none."""
    apart = distances[distances > 0]
    return apart.median().item() if len(apart) else 1.0


@dataclass(frozen=True, kw_only=True)
class KernelRidges:
    """Kernel ridge at each parameter (G, C)."""

    parameters: Tensor
    fits: Sequence[KernelRidge]

    def predict(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Return the targets of fields by the fit at the nearest parameter."""
        found = torch.empty_like(fields, dtype=torch.float64)
        group = torch.cdist(conditions, self.parameters).argmin(dim=1)
        for number in group.unique().tolist():
            rows = group == number
            found[rows] = self.fits[number].predict(fields[rows])
        return found


LearnedBaseline: TypeAlias = LinearMap | KernelRidges
"""Fitted predictor."""


@torch.no_grad()
def fit_baseline(
    task: Task, parameters: Tensor, device: torch.device, beat: Callable[[], None]
) -> LearnedBaseline:
    """Fit the baseline of a task at each of its parameters (G, C). All ranks call `beat` equally often."""
    train = task.train
    most = MAX_SAMPLES if train.steady else None
    groups = read_groups(task, parameters, values=_MAX_VALUES, beat=beat, max_rows=most)
    batches = ((fields.to(device).double() for fields in group) for group in groups)
    if not train.steady:
        modes = Modes(grid=tuple(train.grid), periodic=train.symmetry == "shift")
        return fit_linear_map(modes, parameters, batches)
    fits = []
    for group in batches:
        fields = torch.cat(list(group))
        fits.append(fit_kernel_ridge(fields[:, 0], fields[:, 1], partial(_images, task)))
        beat()
    return KernelRidges(parameters=parameters, fits=fits)


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
    rows = spaced(len(train), min(MAX_SAMPLES, _MAX_INPUT_VALUES // values))
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
    freedom = _freedom(inputs[:_MAX_SELECTION])
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


def _images(task: Task, fields: Tensor) -> Tensor:
    """Return all images of fields (B, K, *X) under the symmetry of a square; else the fields themselves."""
    if task.train.symmetry != "square":
        return fields
    grid = tuple(fields.shape[2:])
    points = torch.from_numpy(image_points("square", grid, np.arange(image_count("square", grid))))
    return fields.flatten(2)[:, :, points.to(fields.device)].movedim(2, 1).flatten(0, 1).unflatten(2, grid)
