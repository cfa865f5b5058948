"""3-D compressible Navier-Stokes equations in a periodic unit cube (gas.py)."""

from vastrun.trainer.data.gas import Gas, GasFields, draw
from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.problem import Problem

_FIELDS = ("density", "pressure", "Vx", "Vy", "Vz")


def _solve(begin: GasFields, mach: float, eta: float, grid: Grid) -> Array:
    # On the grid itself: twice as many cells along each axis would take sixteen times as long.
    state = begin(grid.points, mach)
    return Gas(viscosity=eta).solve(state, grid.frames, grid.dt, grid.points)


PROBLEM = Problem(
    task="compressible_3d",
    generator="vastrun compressible-3d 1",
    file="3D_CFD_Rand_M{0}_Eta{1}_Zeta{1}_periodic_Train.hdf5".format,
    attributes=(("M",), ("eta", "zeta")),
    channels=_FIELDS,
    layout=lambda grid: ArraysLayout(grid=grid, fields=_FIELDS, axes=3),
    draw=lambda n, _, rng: draw(n, 3, rng),
    solve=_solve,
    symmetry="shift",
    chunk=2,
)
