"""Samples: one split of a task, read from its files as they are asked for, whatever their layout."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from vastrun.trainer.data.layouts import Layout, Reader
from vastrun.trainer.data.pdebench import Fields, MappedFile, check_finite, opened
from vastrun.trainer.data.stride import Stride
from vastrun.trainer.sampling.windows import Symmetry


@dataclass(frozen=True, kw_only=True)
class FilePart:
    """Consecutive samples of one file."""

    path: Path
    first: int
    count: int
    stride: Stride
    """Of its file."""
    parameters: tuple[float, ...]


class Samples:
    """All parts one after the other. Each process opens the files itself, so that it may be pickled."""

    def __init__(
        self,
        layout: Layout,
        channels: Sequence[str],
        parts: Sequence[FilePart],
        *,
        symmetry: Symmetry = "none",
        mapped: bool = False,
    ) -> None:
        self.channels = tuple(channels)
        """What they are, in order. Of a steady problem: what is given, then what is asked for."""
        self.parameters = np.array([part.parameters for part in parts for _ in range(part.count)], np.float32)
        """(N, P): the logarithms of the PDE's parameter, if any, and of the time step, if there is time."""
        self.symmetry: Symmetry = symmetry
        self._layout = layout
        self._mapped = mapped
        self._parts = tuple(parts)
        self.strides = {part.path: part.stride for part in parts}
        """By file: which of its points and frames are read."""
        self._ends = np.cumsum([part.count for part in parts])
        self._offsets = self._ends - [part.first + part.count for part in parts]
        """What to take from a sample's number for its row."""
        self._readers: dict[int, Reader] = {}
        """By part; opened by the process `_opener`."""
        self._opener = os.getpid()

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample: (frames, channels, *points), in physical units; steady: (channels, *points)."""
        return self._layout.shape

    @property
    def as_frames(self) -> tuple[int, ...]:
        """The shape of a sample as (frames, channels, *points); of a steady problem, what is given is one
        frame, and what is asked for the next."""
        return (2, 1, *self.shape[1:]) if self.steady else self.shape

    @property
    def steady(self) -> bool:
        """There is no time: the last channel follows from the ones before it."""
        return self._layout.steady

    def read(self, numbers: Sequence[int], frames: slice = slice(None)) -> Fields:
        """Read these samples, (B, *shape) float32; of trajectories, in these frames. Raises DataError."""
        chosen = range(self.shape[0])[frames]
        shape = self.shape if self.steady else (len(chosen), *self.shape[1:])
        fields: Fields = np.empty((len(numbers), *shape), np.float32)
        blocks = self.each(numbers, [slice(chosen.start, chosen.stop)] * len(numbers))
        for field, block, (part, row) in zip(fields, blocks, self._places(numbers), strict=True):
            check_finite(self._parts[part].path, block[None], row)
            field[...] = block
        return fields

    def each(self, numbers: Sequence[int], frames: Iterable[slice]) -> Iterator[Fields]:
        """Yield these samples one by one, each in its frames, both ends given.

        They may hold what is not finite.
        Raises DataError."""
        if self._opener != os.getpid():  # HDF5's handles are no good in a process that was forked
            self._readers, self._opener = {}, os.getpid()
        for (part, row), chosen in zip(self._places(numbers), frames, strict=True):
            reader = self._readers.get(part) or self._open(part)
            yield reader(row, chosen)

    def _places(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Return the part of each, and its row in the file."""
        chosen = np.asarray(numbers)
        parts: NDArray[np.intp] = np.searchsorted(self._ends, chosen, side="right")
        rows: NDArray[np.int64] = chosen - self._offsets[parts]
        return list(zip(parts.tolist(), rows.tolist(), strict=True))

    def _open(self, part: int) -> Reader:
        path, stride = self._parts[part].path, self._parts[part].stride
        with opened(path):
            pass
        file = h5py.File(path, "r")
        reader = self._readers[part] = self._layout.reader(MappedFile(file) if self._mapped else file, stride)
        return reader

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_readers": {}}


@dataclass(frozen=True, kw_only=True)
class Splits:
    """A task's samples. No initial condition, or coefficient, is in two of them, at whatever parameter."""

    train: Samples
    test: Samples
    validation: Samples | None = None
    """What is kept back from the training, if anything is."""

    @property
    def all(self) -> tuple[Samples, ...]:
        return (
            (self.train, self.test) if self.validation is None else (self.train, self.validation, self.test)
        )
