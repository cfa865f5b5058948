"""Initial conditions of PDEBench's 1-D sets: random sums of four sines, some folded, flipped or windowed.

Written from the definition in Takamoto et al. 2022 (arXiv 2210.07182), appendix D, with period 1.
"""

from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

_MODES = np.arange(1, 5)
_EDGE_WIDTH = 0.01
_MAX_WAVENUMBER = 4


@dataclass(frozen=True, kw_only=True)
class InitialConditions:
    """Parameters of `n` functions of x on the unit circle, which can be evaluated at any x."""

    amplitude: Array
    """(n, 4)"""
    wavenumber: Array
    """(n, 4), whole numbers"""
    phase: Array
    """(n, 4)"""
    folded: NDArray[np.bool_]
    """(n,): True where the absolute value is taken"""
    sign: Array
    """(n,)"""
    windowed: NDArray[np.bool_]
    """(n,)"""
    edges: Array
    """(n, 2): start and end of the window"""

    def __len__(self) -> int:
        return len(self.sign)

    def __call__(self, x: Array) -> Array:
        """Return values at positions `x` of any shape: (n, *x.shape). `x` is taken modulo 1."""
        x = np.mod(x, 1.0)
        wide = (len(self), *[1] * x.ndim)
        u = np.zeros((len(self), *x.shape))
        for mode in range(len(_MODES)):
            amplitude, wavenumber, phase = (
                part[:, mode].reshape(wide) for part in (self.amplitude, self.wavenumber, self.phase)
            )
            u += amplitude * np.sin(2 * np.pi * wavenumber * x + phase)
        u = np.where(self.folded.reshape(wide), np.abs(u), u) * self.sign.reshape(wide)
        left, right = (edge.reshape(wide) for edge in self.edges.T)
        window = 0.5 * (np.tanh((x - left) / _EDGE_WIDTH) - np.tanh((x - right) / _EDGE_WIDTH))
        return np.where(self.windowed.reshape(wide), u * window, u)


def draw(n: int, rng: np.random.Generator) -> InitialConditions:
    """Draw `n` initial conditions.

    Two modes are drawn with replacement; the wavenumber of a mode is its number times its draws, so that a
    mode that was not drawn adds a constant.
    """
    drawn = rng.integers(0, len(_MODES), size=(n, 2))
    times = (drawn[:, :, None] == np.arange(len(_MODES))).sum(axis=1)
    return InitialConditions(
        amplitude=rng.uniform(0.0, 1.0, size=(n, len(_MODES))),
        wavenumber=(_MODES * times).astype(np.float64),
        phase=rng.uniform(0.0, 2 * np.pi, size=(n, len(_MODES))),
        folded=rng.uniform(size=n) < 0.1,
        sign=np.where(rng.uniform(size=n) < 0.5, -1.0, 1.0),
        windowed=rng.uniform(size=n) < 0.1,
        edges=np.stack([rng.uniform(0.1, 0.45, size=n), rng.uniform(0.55, 0.9, size=n)], axis=1),
    )


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
