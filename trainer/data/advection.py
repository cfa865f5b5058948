"""1-D advection, u_t + beta u_x = 0 on the unit circle, solved exactly: u(x, t) = u0(x - beta t)."""

from vastrun.trainer.data.initial_conditions import Array, InitialConditions, draw
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.problem import Problem

GENERATOR = "vastrun advection 1"


def solve(u0: InitialConditions, beta: float, grid: Grid) -> Array:
    """Return the exact solution on `grid`: (n, T, X)."""
    return u0(grid.x[None, :] - beta * grid.t[:, None])


PROBLEM = Problem(
    task="advection",
    generator=GENERATOR,
    file="1D_Advection_Sols_beta{}.hdf5".format,
    attributes=(("beta",),),
    channels=("u",),
    layout=lambda grid: ArraysLayout(grid=grid, fields=("tensor",)),
    draw=lambda n, _, rng: draw(n, rng),
    solve=solve,
    symmetry="shift",
    chunk=256,
)
generate, make, validation = PROBLEM.generate, PROBLEM.make, PROBLEM.validation
load, store, path_of = PROBLEM.load, PROBLEM.store, PROBLEM.path_of
