"""2-D compressible Navier-Stokes equations in a periodic unit square (gas.py)."""

from vastrun.trainer.data.gas import Gas, GasFields, draw
from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid, whole_cells
from vastrun.trainer.data.problem import Problem

_FIELDS = ("density", "pressure", "Vx", "Vy")
_MIN_CELLS = 32
_INVISCID = 1e-8
"""Viscosity of PDEBench's files with 512 points along an axis; the others have 128."""


def _solve(begin: GasFields, mach: float, eta: float, grid: Grid) -> Array:
    state = begin(whole_cells(grid.points, _MIN_CELLS), mach)
    return Gas(viscosity=eta).solve(state, grid.frames, grid.dt, grid.points)


def _file(mach: float, eta: float) -> str:
    points = 512 if eta == _INVISCID else 128
    return f"2D_CFD_Rand_M{mach}_Eta{eta}_Zeta{eta}_periodic_{points}_Train.hdf5"


PROBLEM = Problem(
    task="compressible_2d",
    generator="vastrun compressible-2d 1",
    file=_file,
    attributes=(("M",), ("eta", "zeta")),
    channels=_FIELDS,
    layout=lambda grid: ArraysLayout(grid=grid, fields=_FIELDS, axes=2),
    draw=lambda n, _, rng: draw(n, 2, rng),
    solve=_solve,
    symmetry="shift",
    chunk=8,
    cells_of=lambda points, *_: whole_cells(points, _MIN_CELLS),
)
