"""Stored trajectories: read from files window by window, so that they need not fit in memory.

host    the files are memory-mapped: one copy in memory serves all ranks, as far as it fits
disk    each reading process opens the files itself; chunked and compressed files work, too
"""

import weakref
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vastrun.trainer.data.pdebench import Fields
from vastrun.trainer.data.samples import Samples, ranges
from vastrun.trainer.data.trajectories import Trajectories, Windows, moments_chunk, moments_of
from vastrun.trainer.job.data_config import Keep
from vastrun.trainer.sampling.windows import BatchIndices, image_points, shifts_of


class StoredTrajectories:
    """Samples as trajectories. Pickling copies no tensor: the other process opens the files itself."""

    def __init__(self, samples: Samples, *, keep: Keep) -> None:
        self.keep: Keep = keep
        self.steady = samples.steady
        self.symmetry = samples.symmetry
        self.static = samples.static
        self.frames, self.channels, *self.grid = samples.frame_shape
        self._samples = samples
        self._buffers = BufferPool()

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def conditions(self) -> Tensor:
        """(N, C), as in `Trajectories`."""
        return torch.from_numpy(self._samples.parameters)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the moments as `Trajectories` does. Raises DataError when a value is not finite."""
        frame = (self.channels, *self.grid)
        size, frames = moments_chunk(self.frames, prod(frame), steady=self.steady)
        chunks = (
            torch.from_numpy(self._samples.read(numbers, slice(part.start, part.stop))).reshape(
                len(numbers), -1, *frame
            )
            for numbers in ranges(len(self), size)
            for part in ranges(self.frames, frames)
        )
        return moments_of(chunks, steady=self.steady)

    def read(self, indices: BatchIndices) -> Tensor:
        """Read the windows into memory: (B, U + 1, K, *X)."""
        length, grid = indices.frames.shape[1], tuple(self.grid)
        shape = (length, self.channels, prod(grid))
        windows = self._buffers.empty((len(indices.trajectory), *shape))
        copy_image = {"none": _copy_unchanged, "shift": _copy_shifted, "square": _copy_rotated}[self.symmetry]
        # Plain ints: indexing with them is faster.
        frames = [slice(first, first + length) for first in indices.frames[:, 0].tolist()]
        blocks = self._samples.read_each(indices.trajectory, frames)
        for block, image, window in zip(blocks, indices.image.tolist(), windows, strict=True):
            copy_image(block if len(grid) == 1 else block.reshape(shape), image, grid, window)
        return torch.from_numpy(windows.reshape(*windows.shape[:3], *grid))


def _copy_unchanged(block: Fields, image: int, grid: tuple[int, ...], window: Fields) -> None:  # noqa: ARG001
    window[...] = block


def _copy_shifted(block: Fields, image: int, grid: tuple[int, ...], window: Fields) -> None:
    if len(grid) == 1:
        rest = grid[0] - image
        window[..., image:] = block[..., :rest]
        if image:
            window[..., :image] = block[..., rest:]
        return
    shift, axes = shifts_of(grid, np.array([image]))[:, 0], tuple(range(-len(grid), 0))
    shape = (*block.shape[:-1], *grid)
    window[...] = np.roll(block.reshape(shape), tuple(shift.tolist()), axes).reshape(block.shape)


def _copy_rotated(block: Fields, image: int, grid: tuple[int, ...], window: Fields) -> None:
    np.take(block, image_points("square", grid, np.array([image]))[0], axis=-1, out=window)


class StoredTask:
    """Task whose training set stays in memory or on disk; only the test set is moved to the device."""

    def __init__(
        self, train: StoredTrajectories, test: Trajectories, unseen: Trajectories | None = None
    ) -> None:
        self.train = train
        self.test = test
        self.unseen = unseen
        """Test samples at parameters that are not trained; None: there are none."""

    def place(self, device: torch.device) -> None:
        self.test = self.test.to(device)
        self.unseen = self.unseen and self.unseen.to(device)

    def batch(self, step: int, indices: BatchIndices) -> Windows:  # noqa: ARG002 - for tasks that extend this one
        """Read the windows into memory."""
        return Windows(
            fields=self.train.read(indices),
            noise=torch.from_numpy(indices.noise),
            level=torch.from_numpy(indices.level),
            conditions=self.train.conditions[indices.trajectory],
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the test sets: loader workers read training data only."""
        return {name: value for name, value in vars(self).items() if name not in ("test", "unseen")}


class BufferPool:
    """Pool of reusable arrays, thread-safe.

    With `keep: host` one core fills the batches of a GPU, and the page faults of new memory would take as
    long as the copying.
    """

    def __init__(self) -> None:
        self._free: list[Fields] = []

    def empty(self, shape: tuple[int, ...]) -> Fields:
        """Return an uninitialised float32 array, like `np.empty`.

        Its memory is reused once the array and everything made from it are garbage.
        """
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(prod(shape), np.float32)
        if memory.size != prod(shape):
            memory = np.empty(prod(shape), np.float32)
        loan = _Loan(memory)
        weakref.finalize(loan, self._recycle, memory).atexit = False
        return np.asarray(loan).reshape(shape)

    def _recycle(self, memory: Fields) -> None:
        if len(self._free) < 8:
            self._free.append(memory)

    def __getstate__(self) -> dict[str, Any]:
        """Return an empty pool: another process has none of this one's memory."""
        return {"_free": []}


class _Loan:
    """Base object that all arrays and tensors made from a buffer keep alive."""

    def __init__(self, memory: Fields) -> None:
        self.__array_interface__ = memory.__array_interface__
