"""2-D Darcy flow, -div(a grad u) = beta on the unit square, u = 0 on its boundary: a steady problem."""

from dataclasses import dataclass

import numpy as np

from vastrun.trainer.data.initial_conditions import Array
from vastrun.trainer.data.layouts import SteadyLayout
from vastrun.trainer.data.pdebench import Grid
from vastrun.trainer.data.problem import Problem

BUMPS = 5
THRESHOLD = 1.857
"""Mean of the bumps' sum over all fields; a constant, so that no field depends on the others."""
LOW, HIGH = 0.1, 1.0
_MAX_WIDTH = 0.5


@dataclass(frozen=True, kw_only=True)
class Bumps:
    """Parameters of `n` random coefficient fields, which can be evaluated on any grid."""

    centre: Array
    """(n, 5, 2)"""
    width: Array
    """(n, 5): width in exp(-r^2 / width)"""

    def __call__(self, points: int) -> Array:
        """Return the coefficient at cell centres, 0.1 or 1: (n, points, points)."""
        x = (np.arange(points) + 0.5) / points
        away = np.square(x - self.centre[..., None]) / self.width[..., None, None]
        total = np.einsum("nbx,nby->nxy", *np.moveaxis(np.exp(-away), 2, 0))
        return np.where(total > THRESHOLD, HIGH, LOW)


def draw(n: int, rng: np.random.Generator) -> Bumps:
    """Draw `n` coefficients."""
    # A width of zero is no bump; `1 - random` is above zero.
    return Bumps(centre=rng.random((n, BUMPS, 2)), width=_MAX_WIDTH * (1.0 - rng.random((n, BUMPS))))


def solve(a: Array, beta: float) -> Array:
    """Return the steady u at cell centres, for `a` (n, X, Y): (n, X, Y).

    The five-point scheme with harmonic means on the faces and zero on the walls themselves, solved directly
    by elimination row by row (block LU of the block tridiagonal matrix): exact but for rounding.
    """
    n, rows, columns = a.shape
    across, along = conductances(a)
    diagonal = across[:, :-1] + across[:, 1:] + along[:, :, :-1] + along[:, :, 1:]
    inverses = np.empty((rows, n, columns, columns))
    right = np.full((n, rows, columns), beta / (rows * columns))
    place = np.arange(columns)
    for row in range(rows):
        block = np.zeros((n, columns, columns))
        block[:, place, place] = diagonal[:, row]
        block[:, place[:-1], place[1:]] = block[:, place[1:], place[:-1]] = -along[:, row, 1:-1]
        if row:
            face = across[:, row]
            # Schur complement: the row after eliminating the one above it.
            block -= face[:, :, None] * inverses[row - 1] * face[:, None, :]
            right[:, row] += face * _apply(inverses[row - 1], right[:, row - 1])
        inverses[row] = np.linalg.inv(block)
    u = np.empty_like(right)
    u[:, -1] = _apply(inverses[-1], right[:, -1])
    for row in range(rows - 2, -1, -1):
        u[:, row] = _apply(inverses[row], right[:, row] + across[:, row + 1] * u[:, row + 1])
    return u


def conductances(a: Array) -> tuple[Array, Array]:
    """Return the conductance of each face: across rows (n, X + 1, Y) and along them (n, X, Y + 1).

    A wall is half a cell away from the nearest cell centres.
    """
    return _faces(a), _faces(a.swapaxes(1, 2)).swapaxes(1, 2)


def _faces(a: Array) -> Array:
    inner = 2 * a[:, 1:] * a[:, :-1] / (a[:, 1:] + a[:, :-1])
    return np.concatenate([2 * a[:, :1], inner, 2 * a[:, -1:]], axis=1)


def _apply(matrix: Array, vector: Array) -> Array:
    return np.einsum("nij,nj->ni", matrix, vector)


def _solve(a: Array, beta: float, grid: Grid) -> Array:  # noqa: ARG001 - `a` has it
    return np.stack([a, solve(a, beta)], axis=1)


PROBLEM = Problem(
    task="darcy",
    generator="vastrun darcy 2",
    file="2D_DarcyFlow_beta{}_Train.hdf5".format,
    attributes=(("beta",),),
    channels=("coefficient", "solution"),
    layout=lambda grid: SteadyLayout(grid=grid),
    draw=lambda n, grid, rng: draw(n, rng)(grid.points),
    solve=_solve,
    continue_from=lambda a, beta, grid: _solve(a[:, 0], beta, grid),
    symmetry="square",
    chunk=16,
    method={
        "walls": "zero on the boundary, half a cell from the centres",
        "faces": "harmonic mean",
        "threshold": THRESHOLD,
    },
)
