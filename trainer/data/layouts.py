"""PDEBench's HDF5 layouts: arrays of fields, steady problems, incompressible flows, and groups."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import h5py
import numpy as np

from vastrun.trainer.data import hdf5_checks
from vastrun.trainer.data.pdebench import Fields, Grid, MappedFile
from vastrun.trainer.data.stride import Stride, check_points, frame_stride, point_stride
from vastrun.trainer.errors import DataError

Reader = Callable[[int, slice], Fields]
"""Reads a row's sample in the given frames, start and stop; a steady problem has no frames to choose from."""


class Layout(Protocol):
    """Arrangement of samples in an HDF5 file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a sample: (frames, channels, *points); of a steady problem (channels, *points)."""

    @property
    def steady(self) -> bool:
        """True for a problem without time."""

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        """Write `n` samples to the file; each of `pieces` holds some of them, (some, *shape)."""

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        """Return the stride that reads the job's grid from the file.

        Raises DataError unless the file has this layout and at least `min_samples` samples.
        """

    def count(self, file: h5py.File) -> int:
        """Return the number of samples."""

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        """Return a function that reads single samples of the file."""


@dataclass(frozen=True, kw_only=True)
class ArraysLayout:
    """Trajectories with an array (N, T, *X) for each field, `x-coordinate` (X), those of further axes, and
    `t-coordinate` (T + 1)."""

    grid: Grid
    fields: tuple[str, ...]
    """Names of the arrays, in the order of the channels."""
    axes: int = 1
    side: float = 1.0
    """Length of the domain along an axis."""
    centred: bool = False
    """True where the domain's centre is the origin, False where it starts there."""
    steady: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.frames, len(self.fields), *[self.grid.points] * self.axes

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        frames, _, *points = self.shape
        arrays = [file.create_dataset(name, (n, frames, *points), dtype="f4") for name in self.fields]
        for rows, piece in _placed(pieces):
            for channel, array in enumerate(arrays):
                array[rows] = piece[:, :, channel]
        for name in self._coordinates:
            file[name] = (self.side * (self.grid.x - (0.5 if self.centred else 0.0))).astype(np.float32)
        file["t-coordinate"] = (np.arange(self.grid.frames + 1) * self.grid.dt).astype(np.float32)

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        hdf5_checks.expect_datasets(path, file, (*self.fields, *self._coordinates, "t-coordinate"))
        points = ", ".join(["points"] * self.axes)
        first, *further = [
            hdf5_checks.expect_axes(path, file[name], f"samples, frames, {points}") for name in self.fields
        ]
        leading = self.fields[0]
        for name, shape in zip(self.fields[1:], further, strict=True):
            if shape != first:
                raise DataError(f"{path}: expected `{name}` of the shape of `{leading}` {first}, got {shape}")
        hdf5_checks.expect_samples(path, first[0], min_samples)
        lengths = [(axis, name, file[name]) for axis, name in enumerate(self._coordinates, 2)]
        hdf5_checks.expect_lengths(path, file[leading], [(1, "t-coordinate", file["t-coordinate"]), *lengths])
        for name in self._coordinates:
            check_points(path, name, hdf5_checks.read_coordinate(path, file[name]), self.side)
        times = hdf5_checks.read_coordinate(path, file["t-coordinate"])
        return Stride(
            points=point_stride(path, leading, first[2:], self.grid),
            frames=frame_stride(path, "t-coordinate", times, first[1], self.grid),
        )

    def count(self, file: h5py.File) -> int:
        return len(file[self.fields[0]])

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        arrays = [file[name] for name in self.fields]
        points = [slice(None, None, stride.points)] * self.axes
        if len(arrays) == 1 and isinstance(arrays[0], np.ndarray):
            view = arrays[0][(slice(None), slice(None, None, stride.frames), None, *points)]
            return lambda row, frames: view[row, frames]
        # HDF5 is slow at strided reads along the points.
        thinned = (slice(None), None, *points)

        def read_sample(row: int, frames: slice) -> Fields:
            parts = [hdf5_checks.read(array, (row, stride.rows(frames)))[thinned] for array in arrays]
            # A single array needs no copy.
            return np.concatenate(parts, axis=1) if parts[1:] else parts[0]

        return read_sample

    @property
    def _coordinates(self) -> tuple[str, ...]:
        return tuple(f"{axis}-coordinate" for axis in "xyz"[: self.axes])


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
        for rows, piece in _placed(pieces):
            nu[rows], tensor[rows] = piece[:, 0], piece[:, 1:]
        for name in ("x-coordinate", "y-coordinate"):
            file[name] = self.grid.x.astype(np.float32)

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        coordinates = ("x-coordinate", "y-coordinate")
        hdf5_checks.expect_datasets(path, file, ("nu", "tensor", *coordinates))
        input_shape = hdf5_checks.expect_axes(path, file["nu"], "samples, points, points")
        target_shape = hdf5_checks.expect_axes(path, file["tensor"], "samples, 1, points, points")
        if target_shape != (input_shape[0], 1, *input_shape[1:]):
            raise DataError(
                f"{path}: expected `tensor` to match the samples of `nu` {input_shape}, got {target_shape}"
            )
        hdf5_checks.expect_samples(path, input_shape[0], min_samples)
        hdf5_checks.expect_lengths(
            path, file["nu"], [(axis, name, file[name]) for axis, name in enumerate(coordinates, 1)]
        )
        for name in coordinates:
            check_points(path, name, hdf5_checks.read_coordinate(path, file[name]), 1.0)
        return Stride(points=point_stride(path, "nu", input_shape[1:], self.grid))

    def count(self, file: h5py.File) -> int:
        return len(file["tensor"])

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        nu, tensor, thinned = file["nu"], file["tensor"], slice(None, None, stride.points)
        return lambda row, _: np.concatenate(
            [hdf5_checks.read(nu, row)[None], hdf5_checks.read(tensor, row)]
        )[:, thinned, thinned]


@dataclass(frozen=True, kw_only=True)
class IncompressibleLayout:
    """Incompressible flows: `velocity` (N, T, X, Y, 2), `particles` (N, T, X, Y, 1), `force` (N, X, Y, 2).

    `t` (N, T). The channels of a frame are the velocity, the particles and the force, which does not change.
    """

    grid: Grid
    steady: ClassVar[bool] = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.grid.frames, 5, self.grid.points, self.grid.points

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        frames, _, *points = self.shape
        velocity, particles, force = (
            file.create_dataset(name, (n, *axes, *points, last), dtype="f4")
            for name, axes, last in (("velocity", [frames], 2), ("particles", [frames], 1), ("force", [], 2))
        )
        for rows, piece in _placed(pieces):
            fields = np.moveaxis(piece, 2, -1)
            velocity[rows], particles[rows] = fields[..., :2], fields[..., 2:3]
            force[rows] = fields[:, 0, ..., 3:]
        file["t"] = np.tile(self.grid.t.astype(np.float32), (n, 1))

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        hdf5_checks.expect_datasets(path, file, ("velocity", "particles", "force", "t"))
        shape = hdf5_checks.expect_axes(path, file["velocity"], "samples, frames, points, points, 2")
        for name, expected in (
            ("particles", (*shape[:-1], 1)),
            ("force", (shape[0], *shape[2:])),
            ("t", shape[:2]),
        ):
            if file[name].shape != expected:
                raise DataError(
                    f"{path}: expected `{name}` of shape {expected}, as `velocity` is {shape}, "
                    f"got {file[name].shape}: are the axes in another order?"
                )
        hdf5_checks.expect_samples(path, shape[0], min_samples)
        if shape[0] > hdf5_checks.MAX_GROUPS:
            raise DataError(
                f"{path}: expected at most {hdf5_checks.MAX_GROUPS} samples in a file, got {shape[0]}"
            )
        frames = {
            frame_stride(path, "t", hdf5_checks.read(file["t"], row), shape[1], self.grid)
            for row in range(shape[0])
        }
        if len(frames) > 1:
            raise DataError(f"{path}: expected the same times for all samples, `t` has several")
        return Stride(points=point_stride(path, "velocity", shape[2:4], self.grid), frames=frames.pop())

    def count(self, file: h5py.File) -> int:
        return len(file["velocity"])

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        velocity, particles, force = (file[name] for name in ("velocity", "particles", "force"))
        thinned = slice(None, None, stride.points)

        def read_sample(row: int, frames: slice) -> Fields:
            chosen = (row, stride.rows(frames))
            moving = [hdf5_checks.read(array, chosen)[:, thinned, thinned] for array in (velocity, particles)]
            still = hdf5_checks.read(force, row)[thinned, thinned]
            whole = [*moving, np.broadcast_to(still, (len(moving[0]), *still.shape))]
            return np.moveaxis(np.concatenate(whole, axis=-1), -1, 1)

        return read_sample


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
        hdf5_checks.expect_samples(path, count, min_samples)
        if count > hdf5_checks.MAX_GROUPS:
            raise DataError(f"{path}: expected at most {hdf5_checks.MAX_GROUPS} groups, got {count}")
        found = {self._stride_of(path, file, _name(row)) for row in range(count)}
        if len(found) > 1:
            raise DataError(f"{path}: expected all samples on one grid, found several")
        return found.pop()

    def count(self, file: h5py.File) -> int:
        return len(file)

    def reader(self, file: h5py.File | MappedFile, stride: Stride) -> Reader:
        def read_sample(row: int, frames: slice) -> Fields:
            return np.moveaxis(
                stride.coarsen(hdf5_checks.read(file[_name(row)]["data"], stride.rows(frames))), -1, 1
            )

        return read_sample

    @property
    def _coordinates(self) -> tuple[str, ...]:
        return tuple(f"grid/{axis}" for axis in "xyz"[: self.axes])

    def _stride_of(self, path: Path, file: h5py.File, name: str) -> Stride:
        hdf5_checks.expect_local(path, file, name)
        group = file.get(name)
        if not isinstance(group, h5py.Group):
            raise DataError(f"{path}: expected a group `{name}`, found: {', '.join([*file][:3])}, …")
        hdf5_checks.expect_datasets(path, group, ("data", *self._coordinates, "grid/t"))
        data, points = group["data"], ", ".join(["points"] * self.axes)
        shape = hdf5_checks.expect_axes(path, data, f"frames, {points}, {self.channels}")
        lengths = [(axis, f"{name}/{of}", group[of]) for axis, of in enumerate(self._coordinates, 1)]
        hdf5_checks.expect_lengths(path, data, [(0, f"{name}/grid/t", group["grid/t"]), *lengths])
        for of in self._coordinates:
            check_points(path, f"{name}/{of}", hdf5_checks.read_coordinate(path, group[of]), self.side)
        times = hdf5_checks.read_coordinate(path, group["grid/t"])
        return Stride(
            points=point_stride(path, f"{name}/data", shape[1:-1], self.grid),
            frames=frame_stride(path, f"{name}/grid/t", times, shape[0], self.grid),
            averaged=self.averaged,
        )


def _placed(pieces: Iterable[Fields]) -> Iterator[tuple[slice, Fields]]:
    """Yield each piece with its rows among all."""
    filled = 0
    for piece in pieces:
        yield slice(filled, filled + len(piece)), piece
        filled += len(piece)


def _name(row: int) -> str:
    return f"{row:04d}"
