"""1-D advection, u_t + beta u_x = 0 on the unit circle, solved exactly: u(x, t) = u0(x - beta t)."""

import numpy as np

from vastrun.trainer.data.initial_conditions import Array, InitialConditions, draw
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.problem import Problem

GENERATOR = "vastrun advection 1"


def solve(u0: InitialConditions, beta: float, grid: Grid) -> Array:
    """Return the exact solution on `grid`: (n, T, X)."""
    return u0(grid.x[None, :] - beta * grid.t[:, None])


def _continue_from(u: Array, beta: float, grid: Grid) -> Array:
    """Move the waves of `u` (n, 1, cells): (n, T, 1, cells)."""
    turned = np.exp(-2j * np.pi * beta * grid.t[:, None] * np.arange(grid.points // 2 + 1))
    moved: Array = np.fft.irfft(np.fft.rfft(u)[:, None] * turned[:, None], n=grid.points)
    return moved


PROBLEM = Problem(
    task="advection",
    generator=GENERATOR,
    file="1D_Advection_Sols_beta{}.hdf5".format,
    attributes=(("beta",),),
    channels=("u",),
    layout=lambda grid: ArraysLayout(grid=grid, fields=("tensor",)),
    draw=lambda n, _, rng: draw(n, rng),
    solve=solve,
    continue_from=_continue_from,
    symmetry="shift",
    chunk=256,
)
generate, make, validation = PROBLEM.generate, PROBLEM.make, PROBLEM.validation
load, store, path_of = PROBLEM.load, PROBLEM.store, PROBLEM.path_of
