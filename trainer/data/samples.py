"""Samples: one split of a task, read from its files on access, in any layout."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from vastrun.trainer.data.layouts import Layout, Reader
from vastrun.trainer.data.pdebench import Fields, MappedFile, check_finite, open_file
from vastrun.trainer.data.stride import Stride
from vastrun.trainer.sampling.windows import Symmetry

MAX_VALUES = 1 << 26
"""Values that are held at once: 256 MiB as float32, 512 MiB as float64."""


@dataclass(frozen=True, kw_only=True)
class FilePart:
    """Consecutive samples of one file."""

    path: Path
    first: int
    count: int
    stride: Stride
    """Points and frames of the file that are read."""
    parameters: tuple[float, ...]


class Samples:
    """Samples of several file parts in order. Each process opens the files itself, so it can be pickled."""

    def __init__(
        self,
        layout: Layout,
        channels: Sequence[str],
        parts: Sequence[FilePart],
        *,
        symmetry: Symmetry = "none",
        static: int = 0,
        mapped: bool = False,
    ) -> None:
        self.channels = tuple(channels)
        """Names of the channels; of a steady problem, inputs before targets."""
        self.parameters = np.array([part.parameters for part in parts for _ in range(part.count)], np.float32)
        """(N, P): the logarithms of the PDE's parameter, if any, and of the time step, if there is time."""
        self.symmetry: Symmetry = symmetry
        self.static = static
        """Number of the last channels, which do not change with time."""
        self._layout = layout
        self._mapped = mapped
        self._parts = tuple(parts)
        self.strides = {part.path: part.stride for part in parts}
        """Points and frames that are read, by file."""
        self._ends = np.cumsum([part.count for part in parts])
        self._offsets = self._ends - [part.first + part.count for part in parts]
        """Difference between a sample's number and its row in the file, by part."""
        self._readers: dict[int, Reader] = {}
        """Open readers by part, of the process `_opener_pid`."""
        self._opener_pid = os.getpid()

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample: (frames, channels, *points), in physical units; steady: (channels, *points)."""
        return self._layout.shape

    @property
    def frame_shape(self) -> tuple[int, ...]:
        """Shape of a sample as (frames, channels, *points); of a steady problem, input and target are the two
        frames."""
        return (2, 1, *self.shape[1:]) if self.steady else self.shape

    @property
    def steady(self) -> bool:
        """True for a problem without time: the last channel follows from the others."""
        return self._layout.steady

    def read(self, numbers: Sequence[int], frames: slice = slice(None)) -> Fields:
        """Read samples, (B, *shape) float32, in the given frames. Raises DataError."""
        chosen = range(self.shape[0])[frames]
        shape = self.shape if self.steady else (len(chosen), *self.shape[1:])
        fields: Fields = np.empty((len(numbers), *shape), np.float32)
        blocks = self.read_each(numbers, [slice(chosen.start, chosen.stop)] * len(numbers))
        for field, block, (part, row) in zip(fields, blocks, self._locate(numbers), strict=True):
            check_finite(self._parts[part].path, block[None], row)
            field[...] = block
        return fields

    def read_each(self, numbers: Sequence[int], frames: Iterable[slice]) -> Iterator[Fields]:
        """Yield samples one by one, each in its frames (start and stop), without checking for finite values.

        Raises DataError.
        """
        if self._opener_pid != os.getpid():  # HDF5's handles are invalid in a forked process
            self._readers, self._opener_pid = {}, os.getpid()
        for (part, row), chosen in zip(self._locate(numbers), frames, strict=True):
            reader = self._readers.get(part) or self._open(part)
            yield reader(row, chosen)

    def _locate(self, numbers: Sequence[int]) -> list[tuple[int, int]]:
        """Return the part of each sample, and its row in the file."""
        chosen = np.asarray(numbers)
        parts: NDArray[np.intp] = np.searchsorted(self._ends, chosen, side="right")
        rows: NDArray[np.int64] = chosen - self._offsets[parts]
        return list(zip(parts.tolist(), rows.tolist(), strict=True))

    def _open(self, part: int) -> Reader:
        path, stride = self._parts[part].path, self._parts[part].stride
        with open_file(path):
            pass
        file = h5py.File(path, "r")
        reader = self._readers[part] = self._layout.reader(MappedFile(file) if self._mapped else file, stride)
        return reader

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_readers": {}}


@dataclass(frozen=True, kw_only=True)
class Splits:
    """Splits of a task. No initial condition, or coefficient, is in two of them at any parameters."""

    train: Samples
    test: Samples
    validation: Samples | None = None
    """Samples held out of the training set; None: there are none."""

    @property
    def all(self) -> tuple[Samples, ...]:
        return (
            (self.train, self.test) if self.validation is None else (self.train, self.validation, self.test)
        )


def rows_at_once(values_per_row: int, max_rows: int) -> int:
    """Return the number of rows to process at once: up to `max_rows`, fewer where a row is large."""
    return max(1, min(max_rows, MAX_VALUES // max(1, values_per_row)))


def ranges(count: int, size: int) -> Iterator[range]:
    """Yield the numbers below `count` in ranges of `size`; the last one may be shorter."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))
