"""Modes of a field: Fourier's where it is periodic, cosines between walls.

Shapes: B samples, K channels, X points by axis, M modes by axis. Channels come last. All is computed in fp32:
half precision would lose the small modes.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from vastrun.trainer.models.precision import without_autocast


def low_modes(x: Tensor, modes: int) -> Tensor:
    """Return the lowest frequencies along each axis of x (B, *X, K): (B, *M, K), complex.

    All axes but the last have their negative frequencies at the end.
    """
    axes = x.ndim - 2
    spectrum = torch.fft.rfftn(x.float(), dim=tuple(range(1, 1 + axes)))
    for axis in range(1, axes):
        ends = spectrum.narrow(axis, 0, modes), spectrum.narrow(axis, -modes, modes)
        spectrum = torch.cat(ends, dim=axis)
    return spectrum.narrow(axes, 0, modes)


def field_of(low: Tensor, grid: tuple[int, ...]) -> Tensor:
    """Return the field (B, *X, K) of its lowest frequencies (B, *M, K): the inverse of `low_modes`."""
    for axis, points in enumerate(grid[:-1], start=1):
        first, last = low.chunk(2, dim=axis)
        shape = [*first.shape]
        shape[axis] = points - low.shape[axis]
        low = torch.cat([first, low.new_zeros(shape), last], dim=axis)
    # The inverse transform pads the last axis itself.
    return torch.fft.irfftn(low, s=grid, dim=tuple(range(1, 1 + len(grid))))


def cosine_modes(points: int) -> Tensor:
    """Return the orthonormal cosines of an axis, (mode, point): the discrete cosine transform of type 2."""
    number = torch.arange(points, dtype=torch.float64)
    modes = math.sqrt(2 / points) * torch.cos(math.pi / points * number[:, None] * (number + 0.5))
    modes[0] /= math.sqrt(2)
    return modes


def fourier_modes(points: int) -> Tensor:
    """Return orthonormal waves of a periodic axis, (wave, point): slow ones first, without the fastest."""
    place = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    angles = 2 * math.pi * torch.arange(1, (points + 1) // 2, dtype=torch.float64)[:, None] * place
    waves = torch.stack([angles.cos(), angles.sin()], dim=1).flatten(0, 1) * math.sqrt(2 / points)
    return torch.cat([torch.full((1, points), 1 / math.sqrt(points), dtype=torch.float64), waves])


class AxisMatrices(nn.Module):
    """Fixed matrices by which the axes of a field are multiplied."""

    def __init__(self, shapes: Sequence[tuple[int, int]], make: Callable[[int], Tensor]) -> None:
        """`make`: returns the matrix of an axis, by its number, in the shape that `shapes` has for it."""
        super().__init__()
        self._make = make
        for axis, shape in enumerate(shapes):
            self.register_buffer(f"axis{axis}", torch.empty(shape))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the matrices."""
        for axis, matrix in enumerate(self.buffers(recurse=False)):
            matrix.copy_(self._make(axis))

    def forward(self, x: Tensor, *, transposed: bool = False) -> Tensor:
        """Multiply the axes of x (B, *X, K) with their matrices, or with the transposed ones."""
        with without_autocast(x.device):
            x = x.float()
            for axis, matrix in enumerate(self.buffers(recurse=False), start=1):
                x = (x.movedim(axis, -1) @ (matrix if transposed else matrix.T)).movedim(-1, axis)
        return x


def resampling(grid: tuple[int, ...], other: tuple[int, ...], *, periodic: bool) -> AxisMatrices:
    """Return what takes a field to another grid by the modes that both have: exact if it has no others."""
    change = _by_waves if periodic else _by_cosines
    return AxisMatrices(list(zip(other, grid, strict=True)), lambda axis: change(grid[axis], other[axis]))


def _by_waves(points: int, other: int) -> Tensor:
    """Return the matrix (other, points) that takes a periodic axis to another number of points."""
    return _by_modes(fourier_modes(points), fourier_modes(other))


def _by_modes(here: Tensor, there: Tensor) -> Tensor:
    if here.shape == there.shape:
        return torch.eye(here.shape[1], dtype=torch.float64)
    common = min(len(here), len(there))
    return there[:common].T @ here[:common] * math.sqrt(there.shape[1] / here.shape[1])


def _by_cosines(points: int, other: int) -> Tensor:
    """Return the matrix (other, points) that takes an axis between walls to another number of points.

    Cosines have no slope at a wall, so that those of a field with one die out slowly. A parabola with the
    field's slopes at both walls goes its own way; of the rest the cosines die out fast.
    """
    by_modes = _by_modes(cosine_modes(points), cosine_modes(other))
    if points == other:
        return by_modes
    slopes = _slopes_at_walls(points, near=4 * points // min(points, other))
    rest = torch.eye(points, dtype=torch.float64) - _parabolas(points) @ slopes
    return _parabolas(other) @ slopes + by_modes @ rest


def _slopes_at_walls(points: int, near: int) -> Tensor:
    """Return the matrix (2, points) to the slopes at both walls, of cubics fitted to the points near them."""
    place = (torch.arange(near, dtype=torch.float64) + 0.5) / points
    slope = torch.linalg.pinv(torch.vander(place, 4, increasing=True))[1]
    slopes = torch.zeros(2, points, dtype=torch.float64)
    slopes[0, :near] = slope
    slopes[1, -near:] = -slope.flip(0)
    return slopes


def _parabolas(points: int) -> Tensor:
    """Return two parabolas (points, 2), with slope 1 at the first wall or the second and 0 at the other."""
    place = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    return torch.stack([place - place.square() / 2, place.square() / 2], dim=1)
