"""Compressible Navier-Stokes equations in a periodic box with one, two or three axes (gas.py)."""

from functools import partial

from vastrun.trainer.data.gas import Gas, GasFields, draw
from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid, whole_cells
from vastrun.trainer.data.problem import Problem

_FIELDS = ("density", "pressure", "Vx", "Vy", "Vz")
_LINE_SIDE = 2.0
_LINE_MACH = 0.5
_LINE_CELLS, _SQUARE_CELLS = 128, 32
"""Smallest number of a solver's cells along an axis. In a cube it works on the grid itself: twice as many
cells along each axis would take sixteen times as long."""
_INVISCID = 1e-8
"""Viscosity of PDEBench's files of squares with 512 points along an axis; the others have 128."""


def _solve(
    begin: GasFields, mach: float, eta: float, grid: Grid, *, cells: int = 1, side: float = 1.0
) -> Array:
    return _continue_from(begin(whole_cells(grid.points, cells), mach), mach, eta, grid, side=side)


def _continue_from(state: Array, mach: float, eta: float, grid: Grid, *, side: float = 1.0) -> Array:  # noqa: ARG001 - `state` has it
    return Gas(viscosity=eta, side=side).solve(state, grid.frames, grid.dt, grid.points)


def _file_of_line(eta: float) -> str:
    # PDEBench writes 1e-08 as 1.e-8 in one dimension.
    text = "1.e-8" if eta == 1e-8 else str(eta)
    return f"1D_CFD_Rand_Eta{text}_Zeta{text}_periodic_Train.hdf5"


def _file_of_square(mach: float, eta: float) -> str:
    points = 512 if eta == _INVISCID else 128
    return f"2D_CFD_Rand_M{mach}_Eta{eta}_Zeta{eta}_periodic_{points}_Train.hdf5"


LINE = Problem(
    task="compressible_1d",
    generator="vastrun compressible-1d 1",
    file=_file_of_line,
    attributes=(("eta", "zeta"),),
    channels=_FIELDS[:3],
    layout=lambda grid: ArraysLayout(grid=grid, fields=_FIELDS[:3], axes=1, side=_LINE_SIDE, centred=True),
    draw=lambda n, _, rng: draw(n, 1, rng),
    solve=lambda begin, eta, grid: _solve(begin, _LINE_MACH, eta, grid, cells=_LINE_CELLS, side=_LINE_SIDE),
    continue_from=lambda u, eta, grid: _continue_from(u, _LINE_MACH, eta, grid, side=_LINE_SIDE),
    symmetry="shift",
    extent=(-_LINE_SIDE / 2, _LINE_SIDE / 2),
    chunk=64,
    cells_of=lambda points, *_: whole_cells(points, _LINE_CELLS),
    method={"mach": _LINE_MACH},
)
SQUARE = Problem(
    task="compressible_2d",
    generator="vastrun compressible-2d 1",
    file=_file_of_square,
    attributes=(("M",), ("eta", "zeta")),
    channels=_FIELDS[:4],
    layout=lambda grid: ArraysLayout(grid=grid, fields=_FIELDS[:4], axes=2),
    draw=lambda n, _, rng: draw(n, 2, rng),
    solve=partial(_solve, cells=_SQUARE_CELLS),
    continue_from=_continue_from,
    symmetry="shift",
    chunk=8,
    cells_of=lambda points, *_: whole_cells(points, _SQUARE_CELLS),
)
CUBE = Problem(
    task="compressible_3d",
    generator="vastrun compressible-3d 1",
    file="3D_CFD_Rand_M{0}_Eta{1}_Zeta{1}_periodic_Train.hdf5".format,
    attributes=(("M",), ("eta", "zeta")),
    channels=_FIELDS,
    layout=lambda grid: ArraysLayout(grid=grid, fields=_FIELDS, axes=3),
    draw=lambda n, _, rng: draw(n, 3, rng),
    solve=_solve,
    continue_from=_continue_from,
    symmetry="shift",
    chunk=2,
)
PROBLEMS = {problem.task: problem for problem in (LINE, SQUARE, CUBE)}
