"""2-D diffusion-reaction (FitzHugh-Nagumo) on the square (-1, 1)^2 with no-flux walls.

    u_t = 0.001 lap u + u - u^3 - 0.005 - v
    v_t = 0.005 lap v + u - v

Takamoto et al. 2022 (arXiv 2210.07182), appendix D: activator u, inhibitor v, both white noise at first.

A coarser grid is read as the means over its cells: the data are finite volumes. The long waves of the noise
grow into the pattern, and single points do not show them: of every second point along both axes, three
quarters of the energy of a long wave come from short ones. Not even the solver can continue from those (nRMSE
1.30; from the means 0.33).
"""

import math

import numpy as np

from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import GroupsLayout
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.problem import Problem

SIDE = 2.0
_FEED = 0.005
_MAX_STEP = 0.01


def draw(n: int, points: int, rng: np.random.Generator) -> Array:
    """Draw `n` initial conditions: (n, 2, points, points)."""
    return rng.standard_normal((n, 2, points, points))


def solve(begin: Array, grid: Grid) -> Array:
    """Solve from the initial condition `begin` (n, 2, X, Y): (n, T, 2, X, Y).

    Strang splitting: diffusion exactly in the cosine modes of the cells, the reaction by the classical
    Runge-Kutta method.
    """
    steps = math.ceil(grid.dt / _MAX_STEP)
    step = grid.dt / steps
    modes, decay = _modes(begin.shape[-1], step)
    fields = np.empty((len(begin), grid.frames, *begin.shape[1:]))
    fields[:, 0] = w = begin
    for frame in range(1, grid.frames):
        w = _react(w, step / 2)
        for number in range(steps):
            w = modes.T @ ((modes @ w @ modes.T) * decay) @ modes
            # Half a reaction step ends the frame; between two steps the two halves are merged.
            w = _react(w, step / 2 if number == steps - 1 else step)
        fields[:, frame] = w
    return fields


def _modes(points: int, step: float) -> tuple[Array, Array]:
    """Return the orthonormal cosine modes (mode, point), and their decay in `step`: (2, mode, mode)."""
    number = np.arange(points)
    modes = np.sqrt(2 / points) * np.cos(np.pi / points * number[:, None] * (number + 0.5))
    modes[0] /= math.sqrt(2)
    rate = np.square(np.pi / SIDE * number)
    laplacian = rate[:, None] + rate
    return modes, np.stack([np.exp(-diffusivity * laplacian * step) for diffusivity in (0.001, 0.005)])


def _react(w: Array, step: float) -> Array:
    first = _rate(w)
    second = _rate(w + 0.5 * step * first)
    third = _rate(w + 0.5 * step * second)
    return w + step / 6 * (first + 2 * (second + third) + _rate(w + step * third))


def _rate(w: Array) -> Array:
    u, v = w[:, 0], w[:, 1]
    return np.stack([u - u * u * u - _FEED - v, u - v], axis=1)


PROBLEM = Problem(
    task="diffusion_reaction",
    generator="vastrun diffusion-reaction 1",
    file="2D_diff-react_NA_NA.h5".format,
    channels=("u", "v"),
    layout=lambda grid: GroupsLayout(grid=grid, channels=2, side=SIDE, averaged=True),
    draw=lambda n, grid, rng: draw(n, grid.points, rng),
    solve=solve,
    continue_from=solve,
    symmetry="square",
    extent=(-SIDE / 2, SIDE / 2),
    chunk=8,
    method={"longest step": _MAX_STEP},
)
