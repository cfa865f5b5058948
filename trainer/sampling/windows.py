"""Windows: which ones a step trains on, as pure functions of the seed and the step.

There is no state, so that a resume is only a later step. What names a window is drawn for the global batch
and then shared out, and its noise follows from its place in that batch, so that the number of ranks changes
nothing. A window may be one of the symmetric images of a solution, each drawn as often:

shift    a periodic line is turned by whole points
square   a square, and what it says of its points alike, is turned and mirrored
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from vastrun.epochs import Remainder, batch_of

Symmetry = Literal["none", "shift", "square"]

_WINDOW_STREAM = 1
_NOISE_STREAM = 3  # 2 is that of vastrun/mix.py
_BLOCK = 4096
"""Values of noise that are drawn from one stream: to start a stream takes as long as to draw a thousand."""


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


@dataclass(frozen=True, kw_only=True)
class Space:
    """What there is to draw from: the trajectories of one task."""

    trajectories: int
    frames: int
    grid: tuple[int, ...]
    channels: int = 1
    symmetry: Symmetry = "none"
    unroll: int
    """Frames to predict in a window."""

    @property
    def windows(self) -> int:
        """How many different ones there are."""
        return self.trajectories * (self.frames - self.unroll)


@dataclass(frozen=True, kw_only=True)
class WindowNoise:
    """Normal noise of a step's windows, a stream for each few of them, so that no rank draws much that only
    others need: at PDEBench's sizes that takes many milliseconds."""

    seed: int
    step: int
    deviation: float
    shape: tuple[int, ...]
    """(K, *X)"""

    def of(self, first: int, count: int) -> NDArray[np.float32]:
        """Draw the noise of so many windows of the global batch, from number `first` on: (B, K, *X)."""
        if not self.deviation:
            return _silence((count, *self.shape))
        noise: NDArray[np.float32] = np.empty((count, *self.shape), np.float32)
        of_a_block = max(1, _BLOCK // prod(self.shape))
        for block in range(first // of_a_block, (first + count - 1) // of_a_block + 1):
            start = block * of_a_block
            begin, end = max(first, start), min(first + count, start + of_a_block)
            rng = np.random.default_rng([self.seed, _NOISE_STREAM, self.step, block])
            drawn = rng.standard_normal((end - start, *self.shape), dtype=np.float32)
            noise[begin - first : end - first] = drawn[begin - start :]
        noise *= np.float32(self.deviation)
        return noise


@lru_cache(maxsize=8)
def _silence(shape: tuple[int, ...]) -> NDArray[np.float32]:
    # One for all steps: to clear as much memory anew takes a tenth of the time of reading a batch.
    return np.zeros(shape, np.float32)


@dataclass(frozen=True, kw_only=True)
class BatchIndices:
    """The windows of one batch, B of them."""

    first: int
    """The number of the first one in the global batch; the others follow it there."""
    trajectory: NDArray[np.int64]
    """(B,)"""
    frames: NDArray[np.int64]
    """(B, U + 1): consecutive frames"""
    image: NDArray[np.int64]
    """(B,): which of the images that the symmetry of the task gives, at random"""
    level: NDArray[np.float32]
    """(B,): standard normal; how much of the noise, to stages that learn to remove it"""
    window_noise: WindowNoise

    @property
    def noise(self) -> NDArray[np.float32]:
        """(B, K, *X), drawn anew each time."""
        return self.window_noise.of(self.first, len(self.trajectory))

    def share(self, rank: int, world_size: int) -> BatchIndices:
        """Return the part of the batch that `rank` trains on."""
        if world_size == 1:
            return self
        size = len(self.trajectory) // world_size
        mine = slice(rank * size, (rank + 1) * size)
        return replace(
            self,
            first=self.first + mine.start,
            trajectory=self.trajectory[mine],
            frames=self.frames[mine],
            image=self.image[mine],
            level=self.level[mine],
        )


def draw_indices(
    seed: int, step: int, *, batch: int, noise: float, space: Space, remainder: Remainder = "carry"
) -> BatchIndices:
    """Draw the global batch of `step`, from 0. Every trajectory is seen once before one is seen twice."""
    # A stream of each step: a run that is resumed draws what it would have, on any number of ranks.
    rng = np.random.default_rng([seed, _WINDOW_STREAM, step])
    start = rng.integers(0, space.frames - space.unroll, size=batch)
    image = rng.integers(0, order_of(space.symmetry, space.grid), size=batch)
    return BatchIndices(
        first=0,
        trajectory=batch_of(seed, step, batch=batch, total=space.trajectories, remainder=remainder),
        frames=start[:, None] + np.arange(space.unroll + 1),
        image=image,
        level=rng.standard_normal(batch, dtype=np.float32),
        window_noise=WindowNoise(seed=seed, step=step, deviation=noise, shape=(space.channels, *space.grid)),
    )


def whole_trajectories(trajectories: Sequence[int], space: Space) -> BatchIndices:
    """Return the indices of all frames of these trajectories, as they are."""
    count = len(trajectories)
    return BatchIndices(
        first=0,
        trajectory=np.array(trajectories),
        frames=np.tile(np.arange(space.frames), (count, 1)),
        image=np.zeros(count, np.int64),
        level=np.zeros(count, np.float32),
        window_noise=WindowNoise(seed=0, step=0, deviation=0.0, shape=(space.channels, *space.grid)),
    )


@dataclass(frozen=True, kw_only=True)
class SamplePlan:
    """What one rank reads of a task, step by step and in each step micro-batch by micro-batch."""

    seed: int
    batch: int
    """Windows of a step, over all ranks."""
    noise: float
    space: Space
    remainder: Remainder = "carry"
    rank: int
    world_size: int
    accumulation: int
    """Micro-batches of a step."""
    _drawn: dict[int, BatchIndices] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The last step that was asked for: its micro-batches are parts of one draw."""

    def batch_of(self, step: int) -> BatchIndices:
        """Return what all ranks together read."""
        drawn = self._drawn.get(step)
        if drawn is None:
            drawn = draw_indices(
                self.seed,
                step,
                batch=self.batch,
                noise=self.noise,
                space=self.space,
                remainder=self.remainder,
            )
            self._drawn.clear()
            self._drawn[step] = drawn
        return drawn

    def share_of(self, step: int) -> BatchIndices:
        """Return what this rank reads of it."""
        return self.batch_of(step).share(self.rank, self.world_size)

    def micro_batch_of(self, step: int, number: int) -> BatchIndices:
        """Return what this rank reads at once."""
        return self.share_of(step).share(number, self.accumulation)
