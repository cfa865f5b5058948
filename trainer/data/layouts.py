"""PDEBench's HDF5 layouts: 1-D trajectories, steady problems, and 2-D trajectories in a group each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import h5py
import numpy as np

from vastrun.contract.errors import DataError
from vastrun.trainer.data.pdebench import Fields, Grid, MappedFile
from vastrun.trainer.data.stride import Stride, frame_stride, point_stride

Reader = Callable[[int, slice], Fields]
"""Reads a row's sample in the given frames, start and stop; a steady problem has no frames to choose from."""


class Layout(Protocol):
    """Arrangement of samples in an HDF5 file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample: (frames, channels, *points); of a steady problem (channels, *points)."""
        ...

    @property
    def steady(self) -> bool:
        """True for a problem without time."""
        ...

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        """Write `n` samples to the file; each of `pieces` holds some of them, (some, *shape)."""
        ...

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        """Return the stride that reads the job's grid from the file.

        Raises DataError unless the file has this layout and at least `min_samples` samples.
        """
        ...

    def count(self, file: h5py.File) -> int:
        """Return the number of samples."""
        ...

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        """Return a function that reads single samples of the file."""
        ...


@dataclass(frozen=True, kw_only=True)
class LineLayout:
    """1-D trajectories: `tensor` (N, T, X), `x-coordinate` (X), `t-coordinate` (T + 1)."""

    grid: Grid
    steady: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.frames, 1, self.grid.points

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        grid = self.grid
        tensor = file.create_dataset("tensor", (n, grid.frames, grid.points), dtype="f4")
        filled = 0
        for piece in pieces:
            tensor[filled : filled + len(piece)] = piece[:, :, 0]
            filled += len(piece)
        file["x-coordinate"] = grid.x.astype(np.float32)
        file["t-coordinate"] = (np.arange(grid.frames + 1) * grid.dt).astype(np.float32)

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        _expect_datasets(path, file, ("tensor", "x-coordinate", "t-coordinate"))
        shape = _expect_axes(path, file["tensor"], "samples, frames, points")
        _expect_samples(path, shape[0], min_samples)
        return Stride(
            points=point_stride(path, "tensor", shape[2:], self.grid),
            frames=frame_stride(path, "t-coordinate", file["t-coordinate"][:2], shape[1], self.grid),
        )

    def count(self, file: h5py.File) -> int:
        return len(file["tensor"])

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        tensor = file["tensor"]
        if isinstance(tensor, np.ndarray):
            view = tensor[:, :: stride.frames, None, :: stride.points]
            return lambda row, frames: view[row, frames]
        # HDF5 is slow at strided reads along the points.
        return lambda row, frames: tensor[row, stride.rows(frames)][:, None, :: stride.points]


@dataclass(frozen=True, kw_only=True)
class SteadyLayout:
    """Steady problems: coefficient `nu` (N, X, Y), solution `tensor` (N, 1, X, Y)."""

    grid: Grid
    steady: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, ...]:
        return 2, self.grid.points, self.grid.points

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        nu = file.create_dataset("nu", (n, *self.shape[1:]), dtype="f4")
        tensor = file.create_dataset("tensor", (n, 1, *self.shape[1:]), dtype="f4")
        filled = 0
        for piece in pieces:
            rows = slice(filled, filled + len(piece))
            nu[rows], tensor[rows] = piece[:, 0], piece[:, 1:]
            filled += len(piece)
        for name in ("x-coordinate", "y-coordinate"):
            file[name] = self.grid.x.astype(np.float32)

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        _expect_datasets(path, file, ("nu", "tensor", "x-coordinate", "y-coordinate"))
        input_shape = _expect_axes(path, file["nu"], "samples, points, points")
        target_shape = _expect_axes(path, file["tensor"], "samples, 1, points, points")
        if target_shape != (input_shape[0], 1, *input_shape[1:]):
            raise DataError(
                f"{path}: expected `tensor` to match the samples of `nu` {input_shape}, got {target_shape}"
            )
        _expect_samples(path, input_shape[0], min_samples)
        return Stride(points=point_stride(path, "nu", input_shape[1:], self.grid))

    def count(self, file: h5py.File) -> int:
        return len(file["tensor"])

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        nu, tensor, thinned = file["nu"], file["tensor"], slice(None, None, stride.points)
        return lambda row, _: np.concatenate([nu[row][None], tensor[row]])[:, thinned, thinned]


@dataclass(frozen=True, kw_only=True)
class GroupsLayout:
    """2-D trajectories: groups `0000`, `0001`, … of `data` (T, X, Y, C), `grid/x`, `grid/y`, `grid/t`."""

    grid: Grid
    channels: int
    side: float
    """Side length of the square, which is centred at the origin."""
    steady: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.frames, self.channels, self.grid.points, self.grid.points

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        x = (self.side * (self.grid.x - 0.5)).astype(np.float32)
        samples = (sample for piece in pieces for sample in piece)
        for row, sample in zip(range(n), samples, strict=True):
            group = file.create_group(_name(row))
            group["data"] = np.moveaxis(sample, 1, -1).astype(np.float32)
            group["grid/x"] = group["grid/y"] = x
            group["grid/t"] = self.grid.t.astype(np.float32)

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        _expect_samples(path, self.count(file), min_samples)
        found = {self._stride_of(path, file, _name(row)) for row in range(self.count(file))}
        if len(found) > 1:
            raise DataError(f"{path}: expected all samples on one grid, found several")
        return found.pop()

    def count(self, file: h5py.File) -> int:
        return len(file)

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        def read(row: int, frames: slice) -> Fields:
            fields = file[_name(row)]["data"][stride.rows(frames)]
            return np.moveaxis(fields[:, :: stride.points, :: stride.points], -1, 1)

        return read

    def _stride_of(self, path: Path, file: h5py.File, name: str) -> Stride:
        group = file.get(name)
        if not isinstance(group, h5py.Group):
            raise DataError(f"{path}: expected a group `{name}`, found: {', '.join([*file][:3])}, …")
        _expect_datasets(path, group, ("data", "grid/x", "grid/y", "grid/t"))
        shape = _expect_axes(path, group["data"], f"frames, points, points, {self.channels}")
        return Stride(
            points=point_stride(path, f"{name}/data", shape[1:3], self.grid),
            frames=frame_stride(path, f"{name}/grid/t", group["grid/t"][:2], shape[0], self.grid),
        )


def _expect_samples(path: Path, found: int, min_samples: int) -> None:
    if found < min_samples:
        raise DataError(f"{path}: expected at least {min_samples} samples, got {found}")


def _expect_axes(path: Path, array: h5py.Dataset, axes: str) -> tuple[int, ...]:
    """Return the shape; `axes` gives the name or the required length of each axis."""
    names, shape = axes.split(", "), array.shape
    fits = len(names) == len(shape) and all(
        not name.isdecimal() or int(name) == size for name, size in zip(names, shape, strict=True)
    )
    if not fits:
        raise DataError(f"{path}: expected `{array.name.lstrip('/')}` of shape ({axes}), got {shape}")
    return shape


def _expect_datasets(path: Path, group: h5py.Group, names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(group.get(name), h5py.Dataset):
            where = "" if group.name == "/" else f" in `{group.name}`"
            raise DataError(
                f"{path}: expected a dataset `{name}`{where}, found: {', '.join(group) or 'none'}"
            )


def _name(row: int) -> str:
    return f"{row:04d}"
