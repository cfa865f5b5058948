"""PDEBench's HDF5 files: opens, maps and checks them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import h5py
import numpy as np
from numpy.typing import NDArray

from vastrun.trainer.errors import DataError

Fields: TypeAlias = NDArray[np.float32]
Attribute = str | int | float
_MAX_TEXT = 80
"""Characters that are kept of an attribute that is no number; PDEBench's have whole configurations."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Cell centres on the unit circle, and the times of the frames."""

    points: int
    frames: int
    dt: float

    @property
    def x(self) -> NDArray[np.float64]:
        return (np.arange(self.points) + 0.5) / self.points

    @property
    def t(self) -> NDArray[np.float64]:
        return np.arange(self.frames) * self.dt


def whole_cells(points: int, min_cells: int) -> int:
    """Return a solver's number of cells along an axis: the first multiple of `points` from `min_cells` on."""
    return points * math.ceil(min_cells / points)


def attributes(path: Path) -> dict[str, Attribute] | None:
    """Return the file's attributes; None when there is no such file.

    Raises DataError when it is not an HDF5 file.
    """
    if not path.exists():
        return None
    try:
        with h5py.File(path, "r") as file:
            return {name: _plain(value) for name, value in file.attrs.items()}
    except OSError as error:
        raise DataError(f"{path}: expected an HDF5 file: {error}") from error


def _plain(value: Any) -> Attribute:
    """Return an attribute as a number or a string; an array as the start of its text."""
    if isinstance(value, np.ndarray):
        return value.item() if value.size == 1 else str(value)[:_MAX_TEXT]
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, (int, float)):
        return plain
    return "".join(letter if letter.isprintable() else " " for letter in str(plain)[:_MAX_TEXT])


class MappedFile:
    """Open HDF5 file, or a group of it, whose arrays are memory-mapped: one copy serves all processes, as far
    as memory allows. Chunked or compressed arrays cannot be mapped, and are read from the file."""

    def __init__(self, group: h5py.Group) -> None:
        self._group = group
        self._known: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            item = self._group[name]
            self._known[name] = MappedFile(item) if isinstance(item, h5py.Group) else _mapped(item)
        return self._known[name]


def _mapped(array: h5py.Dataset) -> NDArray | h5py.Dataset:
    offset = array.id.get_offset()
    if offset is None:
        return array
    # A plain array: indexing it is faster than a memmap.
    return np.memmap(array.file.filename, array.dtype, "r", offset, array.shape).view(np.ndarray)


@contextmanager
def open_file(path: Path) -> Iterator[h5py.File]:
    """Open the file for reading. Raises DataError when it is missing or damaged."""
    try:
        with h5py.File(path, "r") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: no such file; `python -m vastrun.trainer.data generate` makes it"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: expected an HDF5 file: {error}") from error


def check_finite(path: Path, fields: Fields, first: int) -> None:
    """Raise DataError when a value is not finite; `first` is the first trajectory's number in the file."""
    bad = np.flatnonzero(~np.isfinite(fields).all(axis=tuple(range(1, fields.ndim))))
    if len(bad):
        raise DataError(
            f"{path}: {len(bad)} trajectories hold NaN or infinity, the first is number {first + bad[0]}"
        )
