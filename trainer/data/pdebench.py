"""PDEBench's HDF5 layout for 1-D sets: `tensor` (N, T, X), `x-coordinate` (X), `t-coordinate` (T + 1)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import h5py
import numpy as np
from numpy.typing import NDArray

from trainer.data.faults import DataError

Fields: TypeAlias = NDArray[np.float32]
Attribute = str | int | float


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


def write(
    path: Path, chunks: Iterable[NDArray[np.float64]], *, grid: Grid, n: int, attrs: Mapping[str, Attribute]
) -> None:
    """`path` holds the `n` trajectories that `chunks` yields, each chunk (some, T, X). All or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with h5py.File(part, "w") as file:
            tensor = file.create_dataset("tensor", (n, grid.frames, grid.points), dtype="f4")
            filled = 0
            for chunk in chunks:
                tensor[filled : filled + len(chunk)] = chunk
                filled += len(chunk)
            file["x-coordinate"] = grid.x.astype(np.float32)
            file["t-coordinate"] = (np.arange(grid.frames + 1) * grid.dt).astype(np.float32)
            file.attrs.update(attrs)
        with part.open("rb") as written:
            os.fsync(written.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def attributes(path: Path) -> dict[str, Attribute] | None:
    """The file's attributes; None when there is no such file. Raises DataError when it is no HDF5 file."""
    if not path.exists():
        return None
    try:
        with h5py.File(path, "r") as file:
            return {name: getattr(value, "item", lambda v=value: v)() for name, value in file.attrs.items()}
    except OSError as error:
        raise DataError(f"{path}: expected an HDF5 file: {error}") from error


def check(path: Path, *, grid: Grid, at_least: int) -> None:
    """Raises DataError unless at least so many trajectories of the file fit `grid`."""
    with _opened(path) as file:
        _check_layout(path, file, grid, at_least)


def read(path: Path, rows: slice = slice(None)) -> Fields:
    """The trajectories of the file in `rows`, (N, T, X). Raises DataError."""
    with _opened(path) as file:
        first, end, _ = rows.indices(len(file["tensor"]))
        fields: Fields = file["tensor"][first:end]
    check_finite(path, fields, first)
    return fields


def view(path: Path, *, mapped: bool) -> Fields:
    """All trajectories of the file, (N, T, X); what is indexed is read. The file stays open.

    When `mapped`, they lie in the machine's memory once for all processes; when chunks or compression forbid
    that, once for each.
    """
    tensor = h5py.File(path, "r")["tensor"]
    if not mapped:
        return tensor
    offset = tensor.id.get_offset()
    if offset is None:
        return tensor[:]
    # As a plain array: indexing is quicker with that.
    return np.memmap(path, tensor.dtype, "r", offset, tensor.shape).view(np.ndarray)


def check_finite(path: Path, fields: Fields, first: int) -> None:
    """Raises DataError when a value is not finite; `first` is the number of the first trajectory."""
    bad = np.flatnonzero(~np.isfinite(fields).all(axis=(1, 2)))
    if len(bad):
        raise DataError(
            f"{path}: {len(bad)} trajectories hold NaN or infinity, the first is number {first + bad[0]}"
        )


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    try:
        with h5py.File(path, "r") as file:
            yield file
    except FileNotFoundError as error:
        raise DataError(f"{path}: no such file; `python -m trainer.data generate` makes it") from error
    except OSError as error:
        raise DataError(f"{path}: expected an HDF5 file: {error}") from error


def _check_layout(path: Path, file: h5py.File, grid: Grid, at_least: int) -> None:
    for name in ("tensor", "x-coordinate", "t-coordinate"):
        if name not in file:
            raise DataError(f"{path}: expected a dataset `{name}`, found: {', '.join(file) or 'none'}")
    shape = file["tensor"].shape
    if len(shape) != 3 or shape[0] < at_least or shape[1:] != (grid.frames, grid.points):
        wanted = f"(at least {at_least}, {grid.frames}, {grid.points})"
        raise DataError(
            f"{path}: expected `tensor` of shape {wanted} (trajectories, frames, points), got {shape}"
        )
    t = file["t-coordinate"][:2]
    if len(t) < 2 or not np.isclose(t[1] - t[0], grid.dt, rtol=1e-3):
        raise DataError(f"{path}: expected frames {grid.dt} apart, `t-coordinate` begins with {t.tolist()}")
