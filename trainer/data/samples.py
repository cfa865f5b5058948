"""Samples: one split of a task, read from its files as they are asked for, whatever their layout."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trainer.data.layouts import Layout
from trainer.data.pdebench import Fields, Mapped, check_finite, opened
from trainer.data.stride import Stride
from trainer.data.symmetry import Symmetry


@dataclass(frozen=True, kw_only=True)
class Part:
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
        parts: Sequence[Part],
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
        self._files: dict[Path, h5py.File | Mapped] = {}
        self._reader = os.getpid()

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
        """(B, *shape) float32: these samples; of trajectories, in these frames. Raises DataError."""
        fields = []
        chosen = range(*frames.indices(self.shape[0]))
        for path, row in self.places(numbers):
            sample = self.sample(path, row, chosen)
            check_finite(path, sample[None], row)
            fields.append(sample)
        return np.stack(fields)

    def places(self, numbers: Sequence[int]) -> list[tuple[Path, int]]:
        """The file of each, and its row there."""
        indices = np.asarray(np.searchsorted(self._ends, np.asarray(numbers), side="right"))
        parts = [self._parts[index] for index in indices.tolist()]
        firsts = (np.asarray(numbers) - self._ends[indices]).tolist()
        return [
            (part.path, first + part.first + part.count) for part, first in zip(parts, firsts, strict=True)
        ]

    def sample(self, path: Path, row: int, frames: range) -> Fields:
        """One row of a file, which is open from now on; it may hold what is not finite. Raises DataError."""
        return self._layout.sample(self._file(path), row, frames, self.strides[path])

    def _file(self, path: Path) -> h5py.File | Mapped:
        if self._reader != os.getpid():  # HDF5's handles are no good in a process that was forked
            self._files, self._reader = {}, os.getpid()
        if path not in self._files:
            with opened(path):
                pass
            file = h5py.File(path, "r")
            self._files[path] = Mapped(file) if self._mapped else file
        return self._files[path]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_files": {}}


@dataclass(frozen=True, kw_only=True)
class Splits:
    """A task's samples. No initial condition, or coefficient, is in both, at whatever parameter."""

    train: Samples
    test: Samples
