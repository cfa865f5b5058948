"""Samples: one split of a task, read from its files as they are asked for, whatever their layout."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from trainer.data.layouts import Layout
from trainer.data.pdebench import Fields, check_finite, opened

_CHUNK = 64


@dataclass(frozen=True, kw_only=True)
class Part:
    """Consecutive samples of one file."""

    path: Path
    first: int
    count: int
    parameters: tuple[float, ...]


class Samples:
    """All parts one after the other. Each process opens the files itself, so that it may be pickled."""

    def __init__(self, layout: Layout, channels: Sequence[str], parts: Sequence[Part]) -> None:
        self.channels = tuple(channels)
        """What they are, in order. Of a steady problem: what is given, then what is asked for."""
        self.parameters = np.array([part.parameters for part in parts for _ in range(part.count)], np.float32)
        """(N, P): the logarithms of the PDE's parameter, if any, and of the time step, if there is time."""
        self._layout = layout
        self._parts = tuple(parts)
        self._ends = np.cumsum([part.count for part in parts])
        self._files: dict[Path, h5py.File] = {}
        self._reader = os.getpid()

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample: (frames, channels, *points), in physical units; steady: (channels, *points)."""
        return self._layout.shape

    @property
    def paths(self) -> list[Path]:
        """Of the files, each once."""
        return list(dict.fromkeys(part.path for part in self._parts))

    @property
    def steady(self) -> bool:
        """There is no time: the last channel follows from the ones before it."""
        return self._layout.steady

    def read(self, numbers: Sequence[int], frames: slice = slice(None)) -> Fields:
        """(B, *shape) float32: these samples; of trajectories, in these frames. Raises DataError."""
        fields = []
        for number in numbers:
            index = int(np.searchsorted(self._ends, number, side="right"))
            part = self._parts[index]
            row = int(number - self._ends[index]) + part.first + part.count
            sample = self._layout.sample(self._file(part.path), row, frames)
            check_finite(part.path, sample[None], row)
            fields.append(sample)
        return np.stack(fields)

    def moments(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation of each channel, (C,) and (C,), over all values. Raises DataError.

        Ask the split to train on: what the one to test on is like must not be known.
        """
        count, total, squares = 0, 0.0, 0.0
        channel = 1 if self.steady else 2
        for first in range(0, len(self), _CHUNK):
            values = self.read(range(first, min(first + _CHUNK, len(self)))).astype(np.float64)
            others = tuple(axis for axis in range(values.ndim) if axis != channel)
            count += values.size // len(self.channels)
            total = total + values.sum(axis=others)
            squares = squares + np.square(values).sum(axis=others)
        mean = np.asarray(total / count)
        return mean, np.sqrt((squares - count * mean**2) / (count - 1))

    def _file(self, path: Path) -> h5py.File:
        if self._reader != os.getpid():  # HDF5's handles are no good in a process that was forked
            self._files, self._reader = {}, os.getpid()
        if path not in self._files:
            with opened(path):
                pass
            self._files[path] = h5py.File(path, "r")
        return self._files[path]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_files": {}}


@dataclass(frozen=True, kw_only=True)
class Splits:
    """A task's samples. No initial condition, or coefficient, is in both, at whatever parameter."""

    train: Samples
    test: Samples
