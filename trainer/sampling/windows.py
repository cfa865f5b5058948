"""Windows: the windows of a step, as pure functions of the seed and the step.

There is no state: a resume is just a later step. The indices of windows are drawn for the global batch and
then shared among the ranks, and the noise of a window follows from its place in that batch, so that the
number of ranks has no effect. A window may be a symmetric image of a solution, each image equally likely:

shift    a periodic field is shifted by whole points along each axis
square   a square, and the field on it, is rotated and mirrored
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import prod
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from vastrun.epochs import Remainder, batch_of
from vastrun.trainer.errors import DataError

Symmetry = Literal["none", "shift", "square"]

_WINDOW_STREAM = 1
_NOISE_STREAM = 3  # 2 is that of mix.py
_NOISE_BLOCK = 4096
"""Noise values per random stream: starting a stream takes as long as drawing a thousand values."""


def image_count(symmetry: Symmetry, grid: tuple[int, ...]) -> int:
    """Return the number of images of a solution; image 0 is the solution itself."""
    return {"none": 1, "shift": prod(grid), "square": 8}[symmetry]


def shifts_of(grid: tuple[int, ...], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the shifts of the images `numbers` of a periodic field along each axis, in points: (N, B)."""
    return np.stack(np.unravel_index(numbers, grid))


def image_points(symmetry: Symmetry, grid: tuple[int, ...], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each point of the images, the number of the point that its value comes from: (B, P)."""
    if symmetry == "square":
        table: NDArray[np.int64] = _square_images(grid[0])[numbers]
        return table
    places: NDArray[np.int64] = np.zeros((len(numbers), 1), np.int64)
    for size, shift in zip(grid, shifts_of(grid, numbers), strict=True):
        along = (np.arange(size) - shift[:, None]) % size
        places = (places[:, :, None] * size + along[:, None]).reshape(len(numbers), -1)
    return places


@lru_cache(maxsize=4)
def _square_images(points: int) -> NDArray[np.int64]:
    """Return the four rotations, and the four of the mirror image: (8, P)."""
    square = np.arange(points**2).reshape(points, points)
    images = [np.rot90(side, turns) for side in (square, square.T) for turns in range(4)]
    return np.stack([image.ravel() for image in images])


@dataclass(frozen=True, kw_only=True)
class WindowSpace:
    """Space that windows are drawn from: the trajectories of one task."""

    trajectories: int
    frames: int
    grid: tuple[int, ...]
    channels: int = 1
    symmetry: Symmetry = "none"
    unroll: int
    """Frames to predict in a window."""

    def __post_init__(self) -> None:
        """Raise DataError for a symmetry that the grid does not have."""
        if self.symmetry == "square" and (len(self.grid) != 2 or len(set(self.grid)) > 1):
            shape = " x ".join(map(str, self.grid))
            raise DataError(
                f"expected a grid of two equal axes for the symmetry square, got {shape} points; "
                "the symmetries of other grids are shift and none"
            )

    @property
    def windows(self) -> int:
        """Number of different windows."""
        return self.trajectories * (self.frames - self.unroll)


@dataclass(frozen=True, kw_only=True)
class WindowNoise:
    """Normal noise of a step's windows, one random stream per few windows, so that a rank draws little of the
    other ranks' noise: at PDEBench's sizes drawing all of it takes many milliseconds."""

    seed: int
    step: int
    deviation: float
    shape: tuple[int, ...]
    """(K, *X)"""

    def of(self, first: int, count: int) -> NDArray[np.float32]:
        """Draw the noise of `count` windows of the global batch, from number `first` on: (B, K, *X)."""
        if not self.deviation:
            return _zero_noise((count, *self.shape))
        noise: NDArray[np.float32] = np.empty((count, *self.shape), np.float32)
        windows_per_block = max(1, _NOISE_BLOCK // prod(self.shape))
        for block in range(first // windows_per_block, (first + count - 1) // windows_per_block + 1):
            start = block * windows_per_block
            begin, end = max(first, start), min(first + count, start + windows_per_block)
            rng = np.random.default_rng([self.seed, _NOISE_STREAM, self.step, block])
            drawn = rng.standard_normal((end - start, *self.shape), dtype=np.float32)
            noise[begin - first : end - first] = drawn[begin - start :]
        noise *= np.float32(self.deviation)
        return noise


@lru_cache(maxsize=8)
def _zero_noise(shape: tuple[int, ...]) -> NDArray[np.float32]:
    # Shared by all steps: clearing that much memory takes a tenth of the time of reading a batch.
    return np.zeros(shape, np.float32)


@dataclass(frozen=True, kw_only=True)
class BatchIndices:
    """Indices of the B windows of one batch."""

    first: int
    """Number of the first window in the global batch; the others follow it there."""
    trajectory: NDArray[np.int64]
    """(B,)"""
    frames: NDArray[np.int64]
    """(B, U + 1): consecutive frames"""
    image: NDArray[np.int64]
    """(B,): random number of an image under the task's symmetry"""
    level: NDArray[np.float32]
    """(B,): standard normal; diffusion stages compute the noise level from it"""
    window_noise: WindowNoise

    @property
    def noise(self) -> NDArray[np.float32]:
        """(B, K, *X), drawn again at each access."""
        return self.window_noise.of(self.first, len(self.trajectory))

    def share(self, rank: int, world_size: int) -> Self:
        """Return the part of the batch that `rank` trains on."""
        if world_size == 1:
            return self
        size = len(self.trajectory) // world_size
        own_rows = slice(rank * size, (rank + 1) * size)
        return replace(
            self,
            first=self.first + own_rows.start,
            trajectory=self.trajectory[own_rows],
            frames=self.frames[own_rows],
            image=self.image[own_rows],
            level=self.level[own_rows],
        )


def draw_indices(
    seed: int, step: int, *, batch: int, noise: float, space: WindowSpace, remainder: Remainder = "carry"
) -> BatchIndices:
    """Draw the global batch of `step`, from 0. Every trajectory is seen once before one is seen twice."""
    # One stream per step: a resumed run draws what it would have drawn, on any number of ranks.
    rng = np.random.default_rng([seed, _WINDOW_STREAM, step])
    start = rng.integers(0, space.frames - space.unroll, size=batch)
    image = rng.integers(0, image_count(space.symmetry, space.grid), size=batch)
    return BatchIndices(
        first=0,
        trajectory=batch_of(seed, step, batch=batch, total=space.trajectories, remainder=remainder),
        frames=start[:, None] + np.arange(space.unroll + 1),
        image=image,
        level=rng.standard_normal(batch, dtype=np.float32),
        window_noise=WindowNoise(seed=seed, step=step, deviation=noise, shape=(space.channels, *space.grid)),
    )


@dataclass(frozen=True, kw_only=True)
class SamplePlan:
    """Windows of a task that one rank reads, by step and micro-batch."""

    seed: int
    batch: int
    """Windows per step, over all ranks."""
    noise: float
    space: WindowSpace
    remainder: Remainder = "carry"
    rank: int
    world_size: int
    accumulation: int
    """Micro-batches per step."""
    _drawn: dict[int, BatchIndices] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Cache of the last step's draw: its micro-batches are parts of one draw."""

    def batch_of(self, step: int) -> BatchIndices:
        """Return the global batch of a step."""
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
        """Return this rank's share of a step's batch."""
        return self.batch_of(step).share(self.rank, self.world_size)

    def micro_batch_of(self, step: int, number: int) -> BatchIndices:
        """Return one micro-batch of this rank's share."""
        return self.share_of(step).share(number, self.accumulation)
