"""Random waves: smooth random fields of a periodic box, which can be evaluated at any points."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from vastrun.trainer.data.initial_conditions import Array

_MAX_WAVENUMBER = 4


@dataclass(frozen=True, kw_only=True)
class RandomWaves:
    """Sums of sines and cosines with whole wavenumbers: K fields of each of `n` samples."""

    wavenumbers: Array
    """(W, axes)"""
    cosines: Array
    """(n, K, W): amplitudes"""
    sines: Array
    """(n, K, W): amplitudes"""

    def __len__(self) -> int:
        return len(self.cosines)

    @property
    def axes(self) -> int:
        """Number of axes of the box."""
        return self.wavenumbers.shape[1]

    def __call__(self, x: Array) -> Array:
        """Return the fields on the grid with the positions `x` (X,) along each axis: (n, K, *X)."""
        grid = np.stack(np.meshgrid(*[x] * self.axes, indexing="ij")).reshape(self.axes, -1)
        phase = 2 * np.pi * self.wavenumbers @ grid
        fields = self.cosines @ np.cos(phase) + self.sines @ np.sin(phase)
        return fields.reshape(*fields.shape[:2], *[len(x)] * self.axes)


def draw_waves(n: int, fields: int, axes: int, rng: np.random.Generator) -> RandomWaves:
    """Draw waves of up to four periods, with normal amplitudes that fall like 1 / wavenumber."""
    numbers = range(-_MAX_WAVENUMBER, _MAX_WAVENUMBER + 1)
    # Of a wave and its mirror image one is enough; no wave is constant.
    half = np.array([wave for wave in product(numbers, repeat=axes) if wave > (0,) * axes], float)
    length = np.sqrt(np.square(half).sum(axis=1))
    within = length <= _MAX_WAVENUMBER
    shape = (n, fields, int(within.sum()))
    return RandomWaves(
        wavenumbers=half[within],
        cosines=rng.standard_normal(shape) / length[within],
        sines=rng.standard_normal(shape) / length[within],
    )


def largest(fields: Array) -> Array:
    """Return the largest absolute value of each field: (n, K, *1)."""
    return np.abs(fields).max(axis=tuple(range(2, fields.ndim)), keepdims=True)


def root_mean_square(fields: Array) -> Array:
    """Return the root mean square of the length of the vectors (n, K, *X): (n, 1, *1)."""
    axes = tuple(range(2, fields.ndim))
    squares: Array = np.square(fields).sum(axis=1, keepdims=True).mean(axis=axes, keepdims=True)
    return np.sqrt(squares)
