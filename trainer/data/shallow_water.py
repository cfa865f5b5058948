"""2-D shallow water after a circular dam break, on the square (-2.5, 2.5)^2 with outflow walls.

    h_t + div(h w) = 0,   (h w)_t + div(h w w) + grad(h^2 / 2) = 0   (gravity is 1)

Takamoto et al. 2022 (arXiv 2210.07182), appendix D: height 2 inside of a random radius, 1 outside, at rest.
"""

import math

import numpy as np

from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import GroupsLayout
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.problem import Problem

SIDE = 5.0
_INSIDE, _OUTSIDE = 2.0, 1.0
_MAX_SPEED = 2 * math.sqrt(_INSIDE)
"""Speed of a wave front on a dry bed, an upper bound."""
_CFL = 0.4
_FLIPPED = np.array([0, 2, 1])


def draw(n: int, rng: np.random.Generator) -> Array:
    """Draw the radii of `n` dams: (n,)."""
    return rng.uniform(0.3, 0.7, size=n)


def heights(radius: Array, points: int) -> Array:
    """Return the cell means of the water height before the dam breaks: (n, points, points).

    With whole cells only a few dozen different dams would fit a usual grid: the training set would contain
    those of the test set.
    """
    x = SIDE * ((np.arange(points) + 0.5) / points - 0.5)
    within = (radius[:, None, None] - np.hypot(x[:, None], x)) * points / SIDE
    return _OUTSIDE + (_INSIDE - _OUTSIDE) * np.clip(within + 0.5, 0, 1)


def solve(height: Array, grid: Grid) -> Array:
    """Solve from the heights `height` (n, X, Y) at rest: (n, T, X, Y).

    Finite volumes: minmod slopes, the HLL flux (Harten, Lax & van Leer 1983) and SSP-RK2. The step
    follows from a bound on the speed of waves, so that no field depends on the others.
    """
    q = np.stack([height, np.zeros_like(height), np.zeros_like(height)], axis=1)
    cell = SIDE / height.shape[-1]
    steps = math.ceil(grid.dt * _MAX_SPEED / (_CFL * cell))
    step = grid.dt / steps
    fields = np.empty((len(height), grid.frames, *height.shape[1:]))
    fields[:, 0] = height
    for frame in range(1, grid.frames):
        for _ in range(steps):
            half = q + step / cell * _tendency(q)
            q = 0.5 * (q + half + step / cell * _tendency(half))
        fields[:, frame] = q[:, 0]
    return fields


def _tendency(q: Array) -> Array:
    """Return minus the flux differences over the faces of each cell, summed over both directions."""
    turned = q[:, _FLIPPED].swapaxes(2, 3)
    return _along_x(q) + _along_x(turned)[:, _FLIPPED].swapaxes(2, 3)


def _along_x(q: Array) -> Array:
    # Outflow: the cells beyond a wall copy the cell at the wall.
    padded = np.concatenate([q[:, :, :1], q[:, :, :1], q, q[:, :, -1:], q[:, :, -1:]], axis=2)
    difference = np.diff(padded, axis=2)
    backward, forward = difference[:, :, :-1], difference[:, :, 1:]
    slope = np.where(
        backward * forward > 0, np.sign(forward) * np.minimum(np.abs(backward), np.abs(forward)), 0
    )
    inner = padded[:, :, 1:-1]
    flux = _hll((inner + 0.5 * slope)[:, :, :-1], (inner - 0.5 * slope)[:, :, 1:])
    return flux[:, :, :-1] - flux[:, :, 1:]


def _hll(left: Array, right: Array) -> Array:
    speeds = []
    for side in (left, right):
        velocity, wave = side[:, 1] / side[:, 0], np.sqrt(side[:, 0])
        speeds.append((velocity - wave, velocity + wave))
    slow = np.minimum(0, np.minimum(speeds[0][0], speeds[1][0]))[:, None]
    fast = np.maximum(0, np.maximum(speeds[0][1], speeds[1][1]))[:, None]
    return (fast * _flux(left) - slow * _flux(right) + slow * fast * (right - left)) / (fast - slow)


def _flux(q: Array) -> Array:
    height, along, across = q[:, 0], q[:, 1], q[:, 2]
    velocity = along / height
    return np.stack([along, along * velocity + 0.5 * height**2, across * velocity], axis=1)


PROBLEM = Problem(
    task="shallow_water",
    generator="vastrun shallow-water 1",
    file="2D_rdb_NA_NA.h5".format,
    channels=("h",),
    layout=lambda grid: GroupsLayout(grid=grid, channels=1, side=SIDE),
    draw=lambda n, grid, rng: heights(draw(n, rng), grid.points),
    solve=solve,
    continue_from=lambda u, grid: solve(u[:, 0], grid),
    symmetry="square",
    extent=(-SIDE / 2, SIDE / 2),
    chunk=8,
    method={"cfl": _CFL},
)
