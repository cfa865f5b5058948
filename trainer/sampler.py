"""Which windows a step trains on: pure functions of the seed and the step.

There is no state, so that a resume is only a later step. Everything is drawn for the global batch and then
shared out, so that the number of ranks changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

_ORDER_STREAM, _WINDOW_STREAM = 0, 1


@dataclass(frozen=True, kw_only=True)
class Space:
    """What there is to draw from."""

    trajectories: int
    frames: int
    points: int
    unroll: int
    """Frames to predict in a window."""


@dataclass(frozen=True, kw_only=True)
class Picks:
    """The windows of one batch, B of them."""

    trajectory: NDArray[np.int64]
    """(B,)"""
    frames: NDArray[np.int64]
    """(B, U + 1): consecutive frames"""
    columns: NDArray[np.int64]
    """(B, X): all points, turned by a random shift"""
    noise: NDArray[np.float32]
    """(B, X)"""

    def share(self, rank: int, world_size: int) -> Picks:
        """The part of the batch that `rank` trains on."""
        size = len(self.trajectory) // world_size
        mine = slice(rank * size, (rank + 1) * size)
        return Picks(**{field.name: getattr(self, field.name)[mine] for field in fields(self)})


def picks(seed: int, step: int, *, batch: int, noise: float, space: Space) -> Picks:
    """The global batch of `step`, counted from 0. Every trajectory is seen once before one is seen twice."""
    rng = np.random.default_rng([seed, _WINDOW_STREAM, step])
    start = rng.integers(0, space.frames - space.unroll, size=batch)
    shift = rng.integers(0, space.points, size=batch)
    return Picks(
        trajectory=_trajectories(seed, step * batch, batch, space.trajectories),
        frames=start[:, None] + np.arange(space.unroll + 1),
        columns=(np.arange(space.points) - shift[:, None]) % space.points,
        noise=rng.standard_normal((batch, space.points), dtype=np.float32) * np.float32(noise),
    )


def _trajectories(seed: int, first: int, batch: int, total: int) -> NDArray[np.int64]:
    epochs, places = np.divmod(np.arange(first, first + batch), total)
    orders = {epoch: _order(seed, int(epoch), total) for epoch in np.unique(epochs)}
    return np.array([orders[epoch][place] for epoch, place in zip(epochs, places, strict=True)])


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    return np.random.default_rng([seed, _ORDER_STREAM, epoch]).permutation(total)
