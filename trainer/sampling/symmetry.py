"""Symmetries: what can be done to a solution of a PDE so that it is another one. Each is drawn as often.

shift    a periodic line is turned by whole points
square   a square, and what it says of its points alike, is turned and mirrored
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Symmetry = Literal["none", "shift", "square"]


def order_of(symmetry: Symmetry, grid: tuple[int, ...]) -> int:
    """Return how many different things can be done; number 0 is nothing."""
    return {"none": 1, "shift": grid[0], "square": 8}[symmetry]


def sources(symmetry: Symmetry, grid: tuple[int, ...], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return of each point, row by row, the number of the point that its value comes from: (B, P)."""
    if symmetry == "square":
        table: NDArray[np.int64] = _square(grid[0])[numbers]
        return table
    points = prod(grid)
    return (np.arange(points) - numbers[:, None]) % points


@lru_cache(maxsize=4)
def _square(points: int) -> NDArray[np.int64]:
    """Return four turns, and four of the mirror image: (8, P)."""
    square = np.arange(points**2).reshape(points, points)
    images = [np.rot90(side, turns) for side in (square, square.T) for turns in range(4)]
    return np.stack([image.ravel() for image in images])
