"""Stored trajectories: read from their files window by window, so that they need not fit in memory.

host    the files are mapped: one copy in the machine's memory serves all ranks, as far as there is room
disk    each process that reads opens the files itself, whatever their chunks or compression
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vastrun.contract.config import Keep
from vastrun.trainer.data.pdebench import Fields
from vastrun.trainer.data.samples import Samples
from vastrun.trainer.data.trajectories import MOMENTS_CHUNK, Trajectories, Windows, moments_of
from vastrun.trainer.sampling.windows import BatchIndices, image_points


class StoredTrajectories:
    """The samples, as trajectories. No tensor goes to another process: that opens the files itself."""

    def __init__(self, samples: Samples, *, keep: Keep) -> None:
        self.keep: Keep = keep
        self.steady = samples.steady
        self.symmetry = samples.symmetry
        self.frames, self.channels, *self.grid = samples.as_frames
        self._samples = samples
        self._memory = BufferPool()

    def __len__(self) -> int:
        return len(self._samples)

    @property
    def conditions(self) -> Tensor:
        """(N, C), as of `Trajectories`."""
        return torch.from_numpy(self._samples.parameters)

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return the moments as `Trajectories` does. Raises DataError when a value is not finite."""
        numbers = range(len(self))
        shape = (-1, self.frames, self.channels, *self.grid)
        chunks = (
            torch.from_numpy(self._samples.read(numbers[first : first + MOMENTS_CHUNK])).reshape(shape)
            for first in numbers[::MOMENTS_CHUNK]
        )
        return moments_of(chunks, steady=self.steady)

    def read(self, indices: BatchIndices) -> Tensor:
        """Read the windows into memory: (B, U + 1, K, *X)."""
        length, grid = indices.frames.shape[1], tuple(self.grid)
        shape = (length, self.channels, prod(grid))
        windows = self._memory.empty((len(indices.trajectory), *shape))
        put = _PUTS[self.symmetry]
        # As plain numbers: indexing is quicker with them.
        frames = [slice(first, first + length) for first in indices.frames[:, 0].tolist()]
        blocks = self._samples.each(indices.trajectory, frames)
        for block, image, window in zip(blocks, indices.image.tolist(), windows, strict=True):
            put(block if len(grid) == 1 else block.reshape(shape), image, grid, window)
        return torch.from_numpy(windows.reshape(*windows.shape[:3], *grid))


_Put = Callable[[Fields, int, tuple[int, ...], Fields], None]
"""Puts an image of a block (U + 1, K, P) into a window of the same shape."""


def _put_as_it_is(block: Fields, image: int, grid: tuple[int, ...], window: Fields) -> None:  # noqa: ARG001
    window[...] = block


def _put_shifted(block: Fields, image: int, grid: tuple[int, ...], window: Fields) -> None:
    rest = grid[0] - image
    window[..., image:] = block[..., :rest]
    if image:
        window[..., :image] = block[..., rest:]


def _put_turned(block: Fields, image: int, grid: tuple[int, ...], window: Fields) -> None:
    np.take(block, image_points("square", grid, np.array([image]))[0], axis=-1, out=window)


_PUTS: dict[str, _Put] = {"none": _put_as_it_is, "shift": _put_shifted, "square": _put_turned}


class StoredTask:
    """A task whose trajectories stay in memory or on disk; only those to test on go to the device."""

    def __init__(self, train: StoredTrajectories, test: Trajectories) -> None:
        self.train = train
        self.test = test

    def place(self, device: torch.device) -> None:
        self.test = self.test.to(device)

    def batch(self, step: int, indices: BatchIndices) -> Windows:  # noqa: ARG002 - for tasks that extend this one
        """Read the windows into memory."""
        return Windows(
            fields=self.train.read(indices),
            noise=torch.from_numpy(indices.noise),
            level=torch.from_numpy(indices.level),
            conditions=self.train.conditions[indices.trajectory],
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker needs, which reads to train only."""
        return {name: value for name, value in vars(self).items() if name != "test"}


_KEPT = 8
"""Batches; what is free beyond them goes back to the system."""


class BufferPool:
    """Arrays one after the other. Safe to use from several threads.

    With `keep: host` one core fills the batches of a GPU, and the page faults of new memory would take it as
    long as the copying.
    """

    def __init__(self) -> None:
        self._free: list[Fields] = []

    def empty(self, shape: tuple[int, ...]) -> Fields:
        """Return memory as `np.empty`, float32.

        It is used again when it is gone, and all that was made of it.
        """
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(prod(shape), np.float32)
        if memory.size != prod(shape):
            memory = np.empty(prod(shape), np.float32)
        loan = _Loan(memory)
        weakref.finalize(loan, self._take_back, memory).atexit = False
        return np.asarray(loan).reshape(shape)

    def _take_back(self, memory: Fields) -> None:
        if len(self._free) < _KEPT:
            self._free.append(memory)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for another process: it has none of this one's memory."""
        return {"_free": []}


class _Loan:
    """What all arrays and tensors that are made of the memory hold on to, at the end of their chain."""

    def __init__(self, memory: Fields) -> None:
        self.__array_interface__ = memory.__array_interface__
