"""1-D diffusion-sorption, R(u) u_t = D u_xx on (0, 1), where sorption retards diffusion.

    R(u) = 1 + (1 - porosity) / porosity * density * k * n * u^(n - 1)    (Freundlich's isotherm)
    u(0, t) = 1,   D u_x(1, t) = -u(1, t)

Takamoto et al. 2022 (arXiv 2210.07182), appendix D: u is constant at first, drawn from (0, 0.2); times are
in seconds, up to 500. The condition at x = 1 is that of an outflow. With the other sign, as it is printed
there, a boundary layer would grow by a factor of e every few milliseconds.
"""

import math
from dataclasses import dataclass

import numpy as np

from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import GroupsLayout
from vastrun.trainer.data.pdebench import Grid, whole_cells
from vastrun.trainer.data.problem import Problem

DIFFUSIVITY = 5e-4
_INFLOW = 1.0
_MAX_U0 = 0.2
_MIN_CELLS = 64
_MAX_STEP_S = 2.5
_FIRST_FRAME_STEPS = 8
"""Times as many steps as later frames have: the inflow begins with a jump."""
_NEWTON_STEPS = 12
_TOLERANCE = 1e-11
_SMALLEST = 1e-12
"""Smallest u in a power of it: R is infinite at zero."""


@dataclass(frozen=True, kw_only=True)
class Isotherm:
    """Freundlich's isotherm: the content of a volume, dissolved and sorbed, is u + factor u^exponent."""

    factor: float = (1 - 0.29) / 0.29 * 2880 * 3.5e-4
    exponent: float = 0.874

    def content(self, u: Array) -> Array:
        """Return the content per volume of pores."""
        return u + self.factor * np.maximum(u, _SMALLEST) ** self.exponent

    def retardation(self, u: Array) -> Array:
        """Return R, the derivative of the content."""
        return 1 + self.factor * self.exponent * np.maximum(u, _SMALLEST) ** (self.exponent - 1)


FREUNDLICH = Isotherm()


def solve(
    u0: Array,
    grid: Grid,
    *,
    isotherm: Isotherm = FREUNDLICH,
    max_step_s: float = _MAX_STEP_S,
    cells: int | None = None,
) -> Array:
    """Solve from the constants `u0` (n,) and average the cells to `grid`: (n, T, X).

    Finite volumes of the content, which no step makes or loses, with central fluxes; in time the implicit
    Runge-Kutta method of two stages and second order that damps jumps (Alexander 1977).
    """
    cells = cells or whole_cells(grid.points, _MIN_CELLS)
    steps = math.ceil(grid.dt / max_step_s)
    u = np.repeat(u0[:, None].astype(np.float64), cells, axis=1)
    fields = np.empty((len(u), grid.frames, grid.points))
    for frame in range(grid.frames):
        count = 0 if not frame else steps * (_FIRST_FRAME_STEPS if frame == 1 else 1)
        for _ in range(count):
            u = _step(u, grid.dt / count, isotherm)
        fields[:, frame] = u.reshape(len(u), grid.points, -1).mean(axis=2)
    return fields


def fluxes(u: Array) -> Array:
    """Return what flows to the right through each face, walls included: (n, cells + 1)."""
    cells = u.shape[1]
    inner = -DIFFUSIVITY * cells * np.diff(u, axis=1)
    left = -2 * DIFFUSIVITY * cells * (u[:, :1] - _INFLOW)
    # Half a cell lies between the last centre and the wall, through which u at the wall flows out.
    right = u[:, -1:] * _outflow(cells)
    return np.concatenate([left, inner, right], axis=1)


def _outflow(cells: int) -> float:
    """Return what flows out for a unit of u in the last cell: half a cell's resistance and the wall's."""
    return 1 / (1 + 1 / (2 * DIFFUSIVITY * cells))


def _step(u: Array, step: float, isotherm: Isotherm) -> Array:
    gamma = 1 - 1 / math.sqrt(2)
    content = isotherm.content(u)
    first = _implicit(u, content, gamma * step, isotherm)
    rate = -u.shape[1] * np.diff(fluxes(first), axis=1)
    return _implicit(first, content + (1 - gamma) * step * rate, gamma * step, isotherm)


def _implicit(guess: Array, content: Array, step: float, isotherm: Isotherm) -> Array:
    """Solve content(u) + step * div(flux(u)) = `content` for u by Newton's method, each row separately."""
    u, cells = guess, guess.shape[1]
    weight = step * DIFFUSIVITY * cells**2
    diagonal = np.full(cells, 2 * weight)
    diagonal[0], diagonal[-1] = 3 * weight, weight + step * cells * _outflow(cells)
    for _ in range(_NEWTON_STEPS):
        residual = isotherm.content(u) + step * cells * np.diff(fluxes(u), axis=1) - content
        change = _solve_tridiagonal(isotherm.retardation(u) + diagonal, -weight, residual)
        # Rows that converged stay as they are: no row depends on the others.
        moving = np.abs(change).max(axis=1, keepdims=True) > _TOLERANCE
        u = np.where(moving, np.maximum(u - change, 0.1 * u), u)
        if not moving.any():
            break
    return u


def _solve_tridiagonal(diagonal: Array, neighbours: float, right: Array) -> Array:
    """Solve for x (n, cells): `diagonal` x_i + `neighbours` (x_(i-1) + x_(i+1)) = `right`, by elimination."""
    pivots, values = diagonal.T.copy(), right.T.copy()
    for row in range(1, len(pivots)):
        factor = neighbours / pivots[row - 1]
        pivots[row] -= factor * neighbours
        values[row] -= factor * values[row - 1]
    values[-1] /= pivots[-1]
    for row in range(len(pivots) - 2, -1, -1):
        values[row] = (values[row] - neighbours * values[row + 1]) / pivots[row]
    return values.T


PROBLEM = Problem(
    task="diffusion_sorption",
    generator="vastrun diffusion-sorption 1",
    file="1D_diff-sorp_NA_NA.h5".format,
    channels=("u",),
    layout=lambda grid: GroupsLayout(grid=grid, channels=1, axes=1, side=1.0, centred=False),
    draw=lambda n, _, rng: rng.uniform(0.0, _MAX_U0, size=n),
    solve=solve,
    continue_from=lambda u, grid: solve(u.mean(axis=(1, 2)), grid, cells=grid.points),
    time_unit="s",
    symmetry="none",
    chunk=256,
    cells_of=lambda points: whole_cells(points, _MIN_CELLS),
    method={"longest step": _MAX_STEP_S},
)
