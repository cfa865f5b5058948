"""Linear maps of the modes of a field: fitted by least squares, and learned beside a fitted one.

    mode of the next frame = matrix * mode of this frame + offset

with a matrix and an offset for each mode, at each of G parameters. The modes are Fourier's where the field
is periodic, and cosines between walls. Shapes: B samples, X points by axis, M modes, K channels, A = K + 1
inputs of a mode, C conditions, H features of the conditions.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vastrun.trainer.models.modes import AxisMatrices, cosine_modes
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.models.precision import without_autocast

_RIDGE = 1e-10
"""Share of a mode's mean power that is added to its normal equations, for modes of rounding errors."""
_MAX_FREQUENCIES = {1: 128, 2: 32, 3: 16}
"""Most frequencies along an axis with learned matrices, by number of axes: each combination has its own."""
_SURE = 0.3
"""Smallest factor that is taken for more than noise."""
_LOG_OF_NOTHING = -30.0
"""Logarithm of the smallest factor that counts as more than zero."""


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Transform of fields (B, K, *X) to modes (B, K, M), and back."""

    grid: tuple[int, ...]
    periodic: bool

    def transform(self, fields: Tensor) -> Tensor:
        """Return the modes: complex for a periodic field, else real."""
        if self.periodic:
            axes = tuple(range(2, fields.ndim))
            return torch.fft.rfftn(fields, dim=axes, norm="ortho").flatten(2)
        for axis, points in enumerate(self.grid, start=2):
            cosines = cosine_modes(points).to(fields)
            fields = torch.tensordot(fields, cosines, dims=([axis], [1])).movedim(-1, axis)
        return fields.flatten(2)

    def inverse(self, modes: Tensor) -> Tensor:
        """Return the fields of modes."""
        if self.periodic:
            axes = tuple(range(2, 2 + len(self.grid)))
            shaped = modes.unflatten(2, (*self.grid[:-1], self.grid[-1] // 2 + 1))
            return torch.fft.irfftn(shaped, s=self.grid, dim=axes, norm="ortho")
        fields = modes.unflatten(2, self.grid)
        for axis, points in enumerate(self.grid, start=2):
            cosines = cosine_modes(points).to(fields)
            fields = torch.tensordot(fields, cosines, dims=([axis], [0])).movedim(-1, axis)
        return fields

    def inputs(self, values: Tensor) -> Tensor:
        """Return modes (B, K, M) with a one for the offset: (B, A, M).

        Of a periodic field only the mean has one: a shifted solution is a solution, and no point is special.
        """
        ones = torch.ones_like(values[:1, :1])
        if self.periodic:
            ones[..., 1:] = 0
        return torch.cat([values, ones.expand(len(values), 1, -1)], dim=1)


@dataclass(frozen=True, kw_only=True)
class LinearMap:
    """Fitted linear map at each of some parameters, in float64."""

    modes: Modes
    parameters: Tensor
    """(G, C)"""
    weights: Tensor
    """(G, M, A, K): matrix and offset of each mode."""

    def at(self, conditions: Tensor) -> Tensor:
        """Return the weights at conditions (N, C): (N, M, A, K), between the parameters interpolated.

        Of a single channel on a line the logarithm of each factor is, so that phases turn and sizes decay.
        """
        distance, nearest = torch.cdist(conditions.double(), self.parameters).min(dim=1)
        weights = self.weights[nearest]
        between = distance > _SAME
        if between.any() and len(self.parameters) > 1:
            centre = self.parameters.mean(dim=0)
            basis = _basis(conditions[between].double(), centre)
            shares = basis @ torch.linalg.pinv(_basis(self.parameters, centre))
            mixed = torch.einsum("ng,g...->n...", shares.to(self.weights), self.weights)
            if self.modes.periodic and len(self.modes.grid) == self.weights.shape[3] == 1:
                factors = self.weights[:, :, :1]
                logs = torch.einsum("ng,g...->n...", shares, _coordinates(factors, unwrap=True))
                mixed[:, :, :1] = _factors(logs)
            weights[between] = mixed
        return weights

    def predict(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Return the next frames of fields (B, K, *X) at conditions (B, C)."""
        inputs = self.modes.inputs(self.modes.transform(fields.double()))
        found = torch.empty_like(inputs[:, :-1])
        different, which = conditions.unique(dim=0, return_inverse=True)
        for number, weights in enumerate(self.at(different)):
            rows = which == number
            found[rows] = torch.einsum("bam,mak->bkm", inputs[rows], weights)
        return self.modes.inverse(found)


_SAME = 1e-5
"""Largest distance of two conditions that are the same but for rounding."""


def fit_linear_map(modes: Modes, parameters: Tensor, groups: Iterable[Iterable[Tensor]]) -> LinearMap:
    """Fit the map at each parameter (G, C) to batches of its trajectories, (B, T, K, *X) in float64."""
    weights = [_solve(*_normal_equations(modes, batches, modes.inputs)) for batches in groups]
    return LinearMap(modes=modes, parameters=parameters.double(), weights=torch.stack(weights))


def _normal_equations(
    modes: Modes, batches: Iterable[Tensor], inputs_of: Callable[[Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """Return the products of the inputs with themselves (M, A, A), and with the targets (M, A, K)."""
    products: Tensor | float = 0.0
    targets: Tensor | float = 0.0
    for fields in batches:
        values = modes.transform(fields.flatten(0, 1)).unflatten(0, fields.shape[:2])
        before, after = values[:, :-1].flatten(0, 1), values[:, 1:].flatten(0, 1)
        inputs = inputs_of(before).permute(2, 1, 0)  # (M, A, B)
        conjugate = inputs.conj()
        products = products + conjugate @ inputs.mT
        targets = targets + conjugate @ after.permute(2, 0, 1)
    assert isinstance(products, Tensor) and isinstance(targets, Tensor), "a parameter has a trajectory"
    return products, targets


def _solve(products: Tensor, targets: Tensor) -> Tensor:
    """Solve the normal equations of all modes: (M, A, K)."""
    power = products.diagonal(dim1=1, dim2=2).real.mean(dim=1)
    ridge = (_RIDGE * power).clamp_min(torch.finfo(power.dtype).tiny)
    identity = torch.eye(products.shape[1], dtype=products.dtype, device=products.device)
    return torch.linalg.solve(products + ridge[:, None, None] * identity, targets)


def _basis(conditions: Tensor, centre: Tensor) -> Tensor:
    """Return functions of conditions (B, C), in which factors are expanded: (B, 1 + 2 C).

    Conditions are logarithms: the rate of a decay, or a speed, is linear in their powers of ten.
    """
    away = (conditions - centre).clamp(-_MAX_DECADES, _MAX_DECADES)
    return torch.cat([torch.ones_like(away[:, :1]), away, 10**away - 1], dim=1)


_MAX_DECADES = 4.0


def _coordinates(factors: Tensor, *, unwrap: bool) -> Tensor:
    """Return the coordinates (G, M, K, K, 2) in which matrices are interpolated; zero is the identity.

    Of a single channel they are logarithm of the size and phase, else real and imaginary part. `unwrap`:
    phases grow with the wavenumber, as far as the modes before that are large enough say.
    """
    if factors.shape[-1] > 1:
        identity = torch.eye(factors.shape[-1], dtype=factors.dtype, device=factors.device)
        return torch.view_as_real((factors - identity).to(torch.complex128))
    phases = factors.to(torch.complex128).angle()
    slope = torch.zeros_like(phases[:, 0])
    for mode in range(1, phases.shape[1] if unwrap else 1):
        own = phases[:, mode]
        own += 2 * math.pi * ((slope * mode - own) / (2 * math.pi)).round()
        slope = torch.where(factors[:, mode].abs() > _SURE, own / mode, slope)
    return torch.stack([factors.abs().log().clamp_min(_LOG_OF_NOTHING), phases], dim=-1)


def _factors(coordinates: Tensor) -> Tensor:
    """Return the complex matrices (B, M, K, K) of coordinates; the inverse of `_coordinates`."""
    size = coordinates.shape[-2]
    if size > 1:
        identity = torch.eye(size, dtype=coordinates.dtype, device=coordinates.device)
        return torch.view_as_complex(coordinates.contiguous()) + identity
    return torch.polar(coordinates[..., 0].exp(), coordinates[..., 1])


def _bounded(matrices: Tensor, limits: Tensor) -> Tensor:
    """Scale down the matrices (B, M, K, K) whose size is above its limit (M,)."""
    return matrices / (_size(matrices) / limits).clamp_min(1)[..., None, None]


def _size(matrices: Tensor) -> Tensor:
    """Return an upper bound of the factor by which matrices (..., K, K) lengthen a vector."""
    sizes = matrices.abs()
    squares = sizes.sum(dim=-1).amax(dim=-1) * sizes.sum(dim=-2).amax(dim=-1)
    # The root of zero has an infinite gradient.
    return squares.clamp_min(1e-20).sqrt()


class ModeMap(nn.Module):
    """Linear map of a field: all that a linear problem needs, and the linear part of any other.

    All modes of the grid have the matrices that `fit` finds in the training set, the same for all of a
    length; to those of the lowest modes learned ones are added, which follow from the features.
    """

    shells: Tensor
    low: Tensor
    fitted: Tensor
    centre: Tensor
    limits: Tensor
    corrected: Tensor
    """Zero where the fitted map alone predicts better than with what was learned."""

    def __init__(self, domain: Domain, features: int) -> None:
        super().__init__()
        self.grid, self.channels, self.periodic = domain.grid, domain.channels, domain.periodic
        axes = len(self.grid)
        self.frequencies = min(_MAX_FREQUENCIES[axes], *(points // 2 for points in self.grid))
        self.cosines = AxisMatrices(
            [] if self.periodic else [(points, points) for points in self.grid],
            lambda axis: cosine_modes(self.grid[axis]),
        )
        shells, low = self._numbers()
        count, functions = int(shells.max()) + 1, 1 + 2 * domain.conditions
        self.register_buffer("shells", torch.empty(len(shells), dtype=torch.long))
        self.register_buffer("low", torch.empty(len(low), dtype=torch.long))
        self.register_buffer("fitted", torch.empty(functions, count, self.channels, self.channels, 2))
        self.register_buffer("centre", torch.empty(domain.conditions))
        self.register_buffer("limits", torch.empty(count))
        self.register_buffer("corrected", torch.empty(()))
        self.shape = (len(low), self.channels, self.channels, *((2,) if self.periodic else ()))
        """Shape of the learned matrices: real between walls, else with real and imaginary part last."""
        self.matrices = nn.Linear(features, math.prod(self.shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Map every field to zero, without limits."""
        nn.init.zeros_(self.matrices.weight)
        nn.init.zeros_(self.matrices.bias)
        for buffer, numbers in zip((self.shells, self.low), self._numbers(), strict=True):
            buffer.copy_(torch.from_numpy(numbers))
        self.fitted.zero_()
        self.centre.zero_()
        self.limits.fill_(math.inf)
        self.corrected.fill_(1)

    def _numbers(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the shell of each mode, and the numbers of the lowest modes."""
        axes = [np.arange(points) for points in self.grid]
        # A frequency is a whole wave over the domain: two cosines.
        first, end = (-self.frequencies, self.frequencies) if self.periodic else (0, 2 * self.frequencies)
        if self.periodic:
            axes = [np.where(2 * axis < len(axis), axis, axis - len(axis)) for axis in axes]
            axes[-1] = np.arange(self.grid[-1] // 2 + 1)
        waves = np.stack(np.meshgrid(*axes, indexing="ij")).reshape(len(axes), -1)
        low = np.flatnonzero(((waves >= first) & (waves < end)).all(axis=0))
        # Waves of the same number on axes with other points need not have the same length.
        is_cube = len({*self.grid}) == 1
        shells = (
            np.unique(np.square(waves).sum(axis=0), return_inverse=True)[1]
            if is_cube
            else np.arange(waves.shape[1])
        )
        return shells, low

    @torch.no_grad()
    def fit(self, parameters: Tensor, groups: Iterable[Iterable[Tensor]]) -> None:
        """Fit to normalised trajectories (B, T, K, *X) in float64 at each of the parameters (G, C).

        A mode without a learned matrix never grows, and the others by no more than the data do.
        """
        modes, (shells, low) = Modes(grid=self.grid, periodic=self.periodic), self._numbers()
        count, line = len(self.limits), self.periodic and len(self.grid) == 1
        rest: NDArray[np.int64] = np.delete(shells, low)
        factors = []
        for batches in groups:
            sums = [
                each.new_zeros(count, *each.shape[1:]).index_add(0, self.shells, each)
                for each in _normal_equations(modes, batches, lambda values: values)
            ]
            found = _solve(*(each if line else each.real.to(each) for each in sums)).to(torch.complex128)
            radius = torch.linalg.eigvals(found).abs().amax(dim=1)[rest].clamp_min(1)
            found[rest] = found[rest] / radius[:, None, None]
            factors.append(found)
        self.limits.copy_(_size(torch.stack(factors)).amax(dim=0).clamp_min(1))
        self.centre.copy_(parameters.mean(dim=0))
        basis = _basis(parameters.double(), self.centre.double())
        values = _coordinates(torch.stack(factors), unwrap=line)
        self.fitted.copy_(torch.einsum("fg,g...->f...", torch.linalg.pinv(basis), values))

    def correction(self, learned: Tensor) -> Tensor:
        """Return what was learned, or zeros in an evaluation by the fitted map alone."""
        return learned if self.training else torch.where(self.corrected > 0, learned, 0)

    def forward(self, fields: Tensor, features: Tensor, conditions: Tensor) -> Tensor:
        """Map fields (B, *X, K) to their change, by conditions (B, C) and their features (B, H)."""
        with without_autocast(fields.device):
            basis = _basis(conditions.float(), self.centre)
            factors = _factors(torch.einsum("bf,f...->b...", basis, self.fitted))
            learned = self.correction(self.matrices(features.float())).unflatten(1, self.shape)
            if self.periodic:
                learned = torch.view_as_complex(learned)
                modes = torch.fft.rfftn(fields.float(), dim=tuple(range(1, fields.ndim - 1))).flatten(1, -2)
            else:
                factors = factors.real
                modes = self.cosines(fields).flatten(1, -2)
            factors = _bounded(factors, self.limits)
            shells = self.shells[self.low]
            matrices = _bounded(factors[:, shells] + learned, self.limits[shells])
            matrices = factors[:, self.shells].index_copy(1, self.low, matrices)
            change = torch.einsum("bmi,bmio->bmo", modes, matrices) - modes
            if not self.periodic:
                mapped: Tensor = self.cosines(change.unflatten(1, self.grid), transposed=True)
                return mapped
            shaped = change.unflatten(1, (*self.grid[:-1], self.grid[-1] // 2 + 1))
            return torch.fft.irfftn(shaped, s=self.grid, dim=tuple(range(1, 1 + len(self.grid))))
