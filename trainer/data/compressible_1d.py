"""1-D compressible Navier-Stokes equations in a periodic box of length 2 (gas.py)."""

from __future__ import annotations

import math

import numpy as np

from vastrun.trainer.data.flow_layouts import CompressibleLayout
from vastrun.trainer.data.gas import Gas
from vastrun.trainer.data.gas_fields import GasFields, draw
from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.problem import Problem

SIDE = 2.0
_MACH = 0.5
_MIN_CELLS = 128


def cells_of(points: int, eta: float) -> int:  # noqa: ARG001 - enough for all of them
    """Return the solver's number of cells: a multiple of `points`."""
    return points * math.ceil(_MIN_CELLS / points)


def _draw(n: int, grid: Grid, rng: np.random.Generator) -> GasFields:  # noqa: ARG001 - any grid does
    return draw(n, 1, rng)


def _solve(begin: GasFields, eta: float, grid: Grid) -> Array:
    state = begin(cells_of(grid.points, eta), _MACH)
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
    channels=("density", "pressure", "Vx"),
    layout=lambda grid: CompressibleLayout(grid=grid, axes=1, side=SIDE, centred=True),
    draw=_draw,
    solve=_solve,
    symmetry="shift",
    extent=(-SIDE / 2, SIDE / 2),
    chunk=64,
    cells_of=cells_of,
    method={"mach": _MACH},
)
generate, make, validation = PROBLEM.generate, PROBLEM.make, PROBLEM.validation
