"""PDEBench's HDF5 layouts: 1-D trajectories, steady problems, and 2-D trajectories in a group each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

import h5py
import numpy as np

from trainer.data.faults import DataError
from trainer.data.pdebench import Fields, Grid, Mapped, check_trajectories


class Layout(Protocol):
    """How the samples of a file lie in it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a sample, once read: (frames, channels, *points); (channels, *points) where there is no time."""
        ...

    @property
    def steady(self) -> bool:
        """There is no time."""
        ...

    def write(self, file: h5py.File, n: int, pieces: Iterable[Fields]) -> None:
        """The file holds `n` samples; `pieces` are some each, (some, *shape)."""
        ...

    def check(self, path: Path, file: h5py.File, at_least: int) -> None:
        """Raises DataError unless at least so many samples are there, in this layout."""
        ...

    def count(self, file: h5py.File) -> int:
        """How many samples there are."""
        ...

    def sample(self, file: h5py.File | Mapped, row: int, frames: slice) -> Fields:
        """One sample; of a steady problem there is no choice of frames."""
        ...


@dataclass(frozen=True, kw_only=True)
class Line:
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

    def check(self, path: Path, file: h5py.File, at_least: int) -> None:
        check_trajectories(path, file, self.grid, at_least)

    def count(self, file: h5py.File) -> int:
        return len(file["tensor"])

    def sample(self, file: h5py.File | Mapped, row: int, frames: slice) -> Fields:
        fields: Fields = file["tensor"][row, frames]
        return fields[:, None]


@dataclass(frozen=True, kw_only=True)
class Steady:
    """Steady problems: `nu` (N, X, Y) is given, `tensor` (N, 1, X, Y) is what solves it."""

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

    def check(self, path: Path, file: h5py.File, at_least: int) -> None:
        _expect_datasets(path, file, ("nu", "tensor", "x-coordinate", "y-coordinate"))
        points = self.shape[1:]
        for name, wanted in (("nu", points), ("tensor", (1, *points))):
            found = file[name].shape
            if found[1:] != wanted or found[0] < at_least:
                shape = f"(at least {at_least}, {_listed(wanted)})"
                raise DataError(f"{path}: expected `{name}` of shape {shape}, got {found}")

    def count(self, file: h5py.File) -> int:
        return len(file["tensor"])

    def sample(self, file: h5py.File | Mapped, row: int, frames: slice) -> Fields:  # noqa: ARG002 - there are none
        return np.concatenate([file["nu"][row][None], file["tensor"][row]])


@dataclass(frozen=True, kw_only=True)
class Groups:
    """2-D trajectories: groups `0000`, `0001`, … of `data` (T, X, Y, C), `grid/x`, `grid/y`, `grid/t`."""

    grid: Grid
    channels: int
    side: float
    """Of the square, whose centre is the origin."""
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

    def check(self, path: Path, file: h5py.File, at_least: int) -> None:
        if self.count(file) < at_least:
            raise DataError(f"{path}: expected at least {at_least} trajectories, got {self.count(file)}")
        frames, channels, *points = self.shape
        wanted = (frames, *points, channels)
        for row in range(self.count(file)):
            group = file.get(_name(row))
            if not isinstance(group, h5py.Group):
                raise DataError(
                    f"{path}: expected a group `{_name(row)}`, found: {', '.join([*file][:3])}, …"
                )
            _expect_datasets(path, group, ("data", "grid/x", "grid/y", "grid/t"))
            if group["data"].shape != wanted:
                raise DataError(
                    f"{path}: expected `{_name(row)}/data` of shape ({_listed(wanted)}) "
                    f"(frames, points, points, channels), got {group['data'].shape}"
                )
        t = file[_name(0)]["grid/t"][:2]
        if not np.isclose(t[1] - t[0], self.grid.dt, rtol=1e-3):
            raise DataError(
                f"{path}: expected frames {self.grid.dt} apart, `grid/t` begins with {t.tolist()}"
            )

    def count(self, file: h5py.File) -> int:
        return len(file)

    def sample(self, file: h5py.File | Mapped, row: int, frames: slice) -> Fields:
        return np.moveaxis(file[_name(row)]["data"][frames], -1, 1)


def _expect_datasets(path: Path, group: h5py.Group, names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(group.get(name), h5py.Dataset):
            where = "" if group.name == "/" else f" in `{group.name}`"
            raise DataError(
                f"{path}: expected a dataset `{name}`{where}, found: {', '.join(group) or 'none'}"
            )


def _name(row: int) -> str:
    return f"{row:04d}"


def _listed(shape: Iterable[int]) -> str:
    return ", ".join(map(str, shape))
