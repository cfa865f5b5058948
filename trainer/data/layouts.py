"""PDEBench's HDF5 layouts of one field, of steady problems, and of trajectories in a group each.

Those of flows are in flow_layouts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import h5py
import numpy as np

from vastrun.contract.errors import DataError
from vastrun.trainer.data.hdf5_checks import (
    MAX_GROUPS,
    expect_axes,
    expect_datasets,
    expect_lengths,
    expect_local,
    expect_samples,
    read,
    read_coordinate,
)
from vastrun.trainer.data.pdebench import Fields, Grid, MappedFile
from vastrun.trainer.data.stride import Stride, check_points, frame_stride, point_stride

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
        expect_datasets(path, file, ("tensor", "x-coordinate", "t-coordinate"))
        shape = expect_axes(path, file["tensor"], "samples, frames, points")
        expect_samples(path, shape[0], min_samples)
        x, t = file["x-coordinate"], file["t-coordinate"]
        expect_lengths(path, file["tensor"], [(1, "t-coordinate", t), (2, "x-coordinate", x)])
        check_points(path, "x-coordinate", read_coordinate(path, x), 1.0)
        return Stride(
            points=point_stride(path, "tensor", shape[2:], self.grid),
            frames=frame_stride(path, "t-coordinate", read_coordinate(path, t), shape[1], self.grid),
        )

    def count(self, file: h5py.File) -> int:
        return len(file["tensor"])

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        tensor = file["tensor"]
        if isinstance(tensor, np.ndarray):
            view = tensor[:, :: stride.frames, None, :: stride.points]
            return lambda row, frames: view[row, frames]
        # HDF5 is slow at strided reads along the points.
        return lambda row, frames: read(tensor, (row, stride.rows(frames)))[:, None, :: stride.points]


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
        coordinates = ("x-coordinate", "y-coordinate")
        expect_datasets(path, file, ("nu", "tensor", *coordinates))
        input_shape = expect_axes(path, file["nu"], "samples, points, points")
        target_shape = expect_axes(path, file["tensor"], "samples, 1, points, points")
        if target_shape != (input_shape[0], 1, *input_shape[1:]):
            raise DataError(
                f"{path}: expected `tensor` to match the samples of `nu` {input_shape}, got {target_shape}"
            )
        expect_samples(path, input_shape[0], min_samples)
        expect_lengths(
            path, file["nu"], [(axis, name, file[name]) for axis, name in enumerate(coordinates, 1)]
        )
        for name in coordinates:
            check_points(path, name, read_coordinate(path, file[name]), 1.0)
        return Stride(points=point_stride(path, "nu", input_shape[1:], self.grid))

    def count(self, file: h5py.File) -> int:
        return len(file["tensor"])

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        nu, tensor, thinned = file["nu"], file["tensor"], slice(None, None, stride.points)
        return lambda row, _: np.concatenate([read(nu, row)[None], read(tensor, row)])[:, thinned, thinned]


@dataclass(frozen=True, kw_only=True)
class GroupsLayout:
    """Trajectories in groups `0000`, `0001`, … of `data` (T, *X, C), `grid/t`, `grid/x` and so on."""

    grid: Grid
    channels: int
    axes: int = 2
    side: float
    """Length of the domain along an axis."""
    centred: bool = True
    """True where the domain's centre is the origin, False where it starts there."""
    averaged: bool = False
    """True to read the mean over the cells of a point, where single cells do not determine what follows."""
    steady: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.frames, self.channels, *[self.grid.points] * self.axes

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        x = (self.side * (self.grid.x - (0.5 if self.centred else 0.0))).astype(np.float32)
        samples = (sample for piece in pieces for sample in piece)
        for row, sample in zip(range(n), samples, strict=True):
            group = file.create_group(_name(row))
            group["data"] = np.moveaxis(sample, 1, -1).astype(np.float32)
            for name in self._coordinates:
                group[name] = x
            group["grid/t"] = self.grid.t.astype(np.float32)

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        count = self.count(file)
        expect_samples(path, count, min_samples)
        if count > MAX_GROUPS:
            raise DataError(f"{path}: expected at most {MAX_GROUPS} groups, got {count}")
        found = {self._stride_of(path, file, _name(row)) for row in range(count)}
        if len(found) > 1:
            raise DataError(f"{path}: expected all samples on one grid, found several")
        return found.pop()

    def count(self, file: h5py.File) -> int:
        return len(file)

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        def read_sample(row: int, frames: slice) -> Fields:
            return np.moveaxis(stride.coarsen(read(file[_name(row)]["data"], stride.rows(frames))), -1, 1)

        return read_sample

    @property
    def _coordinates(self) -> tuple[str, ...]:
        return tuple(f"grid/{axis}" for axis in "xyz"[: self.axes])

    def _stride_of(self, path: Path, file: h5py.File, name: str) -> Stride:
        expect_local(path, file, name)
        group = file.get(name)
        if not isinstance(group, h5py.Group):
            raise DataError(f"{path}: expected a group `{name}`, found: {', '.join([*file][:3])}, …")
        expect_datasets(path, group, ("data", *self._coordinates, "grid/t"))
        data, points = group["data"], ", ".join(["points"] * self.axes)
        shape = expect_axes(path, data, f"frames, {points}, {self.channels}")
        lengths = [(axis, f"{name}/{of}", group[of]) for axis, of in enumerate(self._coordinates, 1)]
        expect_lengths(path, data, [(0, f"{name}/grid/t", group["grid/t"]), *lengths])
        for of in self._coordinates:
            check_points(path, f"{name}/{of}", read_coordinate(path, group[of]), self.side)
        times = read_coordinate(path, group["grid/t"])
        return Stride(
            points=point_stride(path, f"{name}/data", shape[1:-1], self.grid),
            frames=frame_stride(path, f"{name}/grid/t", times, shape[0], self.grid),
            averaged=self.averaged,
        )


def _name(row: int) -> str:
    return f"{row:04d}"
