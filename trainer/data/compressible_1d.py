"""1-D compressible Navier-Stokes equations in a periodic box of length 2 (gas.py)."""

from vastrun.trainer.data.gas import Gas, GasFields, draw
from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid, whole_cells
from vastrun.trainer.data.problem import Problem

SIDE = 2.0
_FIELDS = ("density", "pressure", "Vx")
_MACH = 0.5
_MIN_CELLS = 128


def _solve(begin: GasFields, eta: float, grid: Grid) -> Array:
    state = begin(whole_cells(grid.points, _MIN_CELLS), _MACH)
    return Gas(viscosity=eta, side=SIDE).solve(state, grid.frames, grid.dt, grid.points)


def _file(eta: float) -> str:
    # PDEBench writes 1e-08 as 1.e-8 in one dimension.
    text = "1.e-8" if eta == 1e-8 else str(eta)
    return f"1D_CFD_Rand_Eta{text}_Zeta{text}_periodic_Train.hdf5"


PROBLEM = Problem(
    task="compressible_1d",
    generator="vastrun compressible-1d 1",
    file=_file,
    attributes=(("eta", "zeta"),),
    channels=_FIELDS,
    layout=lambda grid: ArraysLayout(grid=grid, fields=_FIELDS, axes=1, side=SIDE, centred=True),
    draw=lambda n, _, rng: draw(n, 1, rng),
    solve=_solve,
    symmetry="shift",
    extent=(-SIDE / 2, SIDE / 2),
    chunk=64,
    cells_of=lambda points, *_: whole_cells(points, _MIN_CELLS),
    method={"mach": _MACH},
)
