"""1-D reaction-diffusion (Fisher's equation), u_t = nu u_xx + rho u (1 - u), on the unit circle.

Takamoto et al. 2022 (arXiv 2210.07182), appendix D: initial conditions as those of Burgers' equation, but for
their absolute value, divided by its maximum.
"""

import math

import numpy as np

from vastrun.trainer.data.initial_conditions import Array, InitialConditions, draw
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid, whole_cells
from vastrun.trainer.data.problem import Problem

_MIN_CELLS = 256
_MAX_STEP = 0.02
"""Longest step in units of 1 / rho: within it the reaction changes little."""
_MIN_STEPS = 4
"""Fewest steps between two frames."""


def begin(u0: InitialConditions, cells: int) -> Array:
    """Return the initial conditions at cell centres, from 0 to 1: (n, cells)."""
    u = np.abs(u0(Grid(points=cells, frames=1, dt=1.0).x))
    highest: Array = u.max(axis=1, keepdims=True)
    return u / np.maximum(highest, np.finfo(np.float64).tiny)


def solve(u: Array, nu: float, rho: float, grid: Grid, *, steps: int | None = None) -> Array:
    """Solve from `u` (n, cells), and average the cells to `grid`: (n, T, X).

    Strang splitting of second order: the reaction by its exact solution, diffusion exactly in Fourier space.
    `steps` are those between two frames; None: as many as the reaction needs.
    """
    count = steps or max(_MIN_STEPS, math.ceil(rho * grid.dt / _MAX_STEP))
    step, cells = grid.dt / count, u.shape[1]
    decay = np.exp(-nu * np.square(2 * np.pi * np.arange(cells // 2 + 1)) * step)
    fields = np.empty((len(u), grid.frames, grid.points))
    for frame in range(grid.frames):
        if frame:
            u = _react(u, rho * step / 2)
            for number in range(count):
                u = np.fft.irfft(np.fft.rfft(u) * decay, n=cells)
                # Half a reaction step ends the frame; between two steps the two halves are merged.
                u = _react(u, rho * step * (0.5 if number == count - 1 else 1.0))
        fields[:, frame] = u.reshape(len(u), grid.points, -1).mean(axis=2)
    return fields


def _react(u: Array, growth: float) -> Array:
    """Return the solution of u' = u (1 - u) after the time `growth`."""
    factor = math.exp(growth)
    return u * factor / (1 + u * (factor - 1))


def _solve(u0: InitialConditions, nu: float, rho: float, grid: Grid) -> Array:
    return solve(begin(u0, whole_cells(grid.points, _MIN_CELLS)), nu, rho, grid)


PROBLEM = Problem(
    task="reaction_diffusion",
    generator="vastrun reaction-diffusion 1",
    file="ReacDiff_Nu{}_Rho{}.hdf5".format,
    attributes=(("Nu",), ("rho",)),
    channels=("u",),
    layout=lambda grid: ArraysLayout(grid=grid, fields=("tensor",)),
    draw=lambda n, _, rng: draw(n, rng),
    solve=_solve,
    continue_from=lambda u, nu, rho, grid: solve(u[:, 0], nu, rho, grid, steps=_MIN_STEPS),
    symmetry="shift",
    chunk=64,
    cells_of=lambda points, *_: whole_cells(points, _MIN_CELLS),
)
