"""1-D Burgers, u_t + (u^2/2)_x = (nu/pi) u_xx on the unit circle, by finite volumes with exact diffusion."""

import math

import numpy as np

from vastrun.trainer.data.initial_conditions import Array, InitialConditions, draw
from vastrun.trainer.data.layouts import ArraysLayout
from vastrun.trainer.data.pdebench import Grid, whole_cells
from vastrun.trainer.data.problem import Problem

_CFL = 0.4
_MIN_CELLS, _MIN_CELLS_FOR_SHOCKS, _MIN_SMOOTH_NU = 256, 1024, 0.01
_ROWS = 64
"""Samples that are solved together: what a step computes in between then stays in the processor's cache."""


def solve(u0: InitialConditions, nu: float, grid: Grid) -> Array:
    """Solve on a finer grid and average the cells to `grid`: (n, T, X).

    Strang splitting: the heat equation exactly in Fourier space, advection by SSP-RK3 (Shu & Osher 1988) with
    monotonised central slopes (van Leer 1977) and Godunov's flux. Diffusion does not limit the step.
    """
    return _solve_from(u0(Grid(points=cells_of(grid.points, nu), frames=1, dt=grid.dt).x), nu, grid)


def _solve_from(start: Array, nu: float, grid: Grid) -> Array:
    """Solve from `start` (n, cells), and average the cells to `grid`."""
    fields = np.empty((len(start), grid.frames, grid.points))
    for first in range(0, len(start), _ROWS):
        u = start[first : first + _ROWS]
        for frame in range(grid.frames):
            if frame:
                u = _evolve(u, nu / math.pi, grid.dt)
            fields[first : first + len(u), frame] = u.reshape(len(u), grid.points, -1).mean(axis=2)
    return fields


def cells_of(points: int, nu: float) -> int:
    """Return the solver's number of cells, enough for this viscosity's shocks."""
    min_cells = _MIN_CELLS if nu >= _MIN_SMOOTH_NU else _MIN_CELLS_FOR_SHOCKS
    return whole_cells(points, min_cells)


def _evolve(u: Array, viscosity: float, duration: float) -> Array:
    """Return `u` after `duration`. Each row has its own time step, so no sample depends on the others."""
    cells = u.shape[1]
    # The maximum never grows: the present speed bounds the speed until the next frame.
    steps = np.maximum(1, np.ceil(np.abs(u).max(axis=1) * duration * cells / _CFL)).astype(int)
    order = np.argsort(-steps, kind="stable")
    u, steps = u[order], steps[order]
    dt = (duration / steps)[:, None]
    wavenumber = 2 * np.pi * np.arange(cells // 2 + 1)
    decay = np.exp(-viscosity * wavenumber**2 * dt)
    u = _diffuse(u, np.sqrt(decay))
    for step in range(1, steps[0] + 1):
        active = int(np.searchsorted(-steps, -step, side="right"))
        last = steps[:active] == step
        moved = _advect(u[:active], dt[:active] * cells)
        # Half a step of diffusion ends the last step; between two steps the halves are one.
        u[:active] = _diffuse(moved, np.where(last[:, None], np.sqrt(decay[:active]), decay[:active]))
    advanced = np.empty_like(u)
    advanced[order] = u
    return advanced


def _diffuse(u: Array, decay: Array) -> Array:
    return np.fft.irfft(np.fft.rfft(u) * decay, n=u.shape[1])


def _advect(u: Array, dt_per_dx: Array) -> Array:
    first = u + dt_per_dx * _tendency(u)
    second = 0.75 * u + 0.25 * (first + dt_per_dx * _tendency(first))
    return u / 3 + 2 / 3 * (second + dt_per_dx * _tendency(second))


def _tendency(u: Array) -> Array:
    """Return minus the difference of the fluxes over the faces of each cell."""
    forward = np.roll(u, -1, axis=1) - u
    backward = np.roll(forward, 1, axis=1)
    steepest = 2 * np.minimum(np.abs(forward), np.abs(backward))
    slope = np.clip(0.5 * (forward + backward), -steepest, steepest) * (forward * backward > 0)
    left = u + 0.5 * slope
    right = np.roll(u - 0.5 * slope, -1, axis=1)
    flux = 0.5 * np.maximum(np.maximum(left, 0) ** 2, np.minimum(right, 0) ** 2)
    return np.roll(flux, 1, axis=1) - flux


PROBLEM = Problem(
    task="burgers",
    generator="vastrun burgers 1",
    file="1D_Burgers_Sols_Nu{}.hdf5".format,
    attributes=(("Nu",),),
    channels=("u",),
    layout=lambda grid: ArraysLayout(grid=grid, fields=("tensor",)),
    draw=lambda n, _, rng: draw(n, rng),
    solve=solve,
    continue_from=lambda u, nu, grid: _solve_from(u[:, 0], nu, grid),
    symmetry="shift",
    chunk=64,
    cells_of=cells_of,
)
