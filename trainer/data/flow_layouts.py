"""PDEBench's HDF5 layout of incompressible flows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import h5py
import numpy as np

from vastrun.contract.errors import DataError
from vastrun.trainer.data.hdf5_checks import (
    MAX_GROUPS,
    expect_axes,
    expect_datasets,
    expect_samples,
    read,
)
from vastrun.trainer.data.layouts import Reader
from vastrun.trainer.data.pdebench import Fields, Grid, MappedFile
from vastrun.trainer.data.stride import Stride, frame_stride, point_stride


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
        filled = 0
        for piece in pieces:
            rows, fields = slice(filled, filled + len(piece)), np.moveaxis(piece, 2, -1)
            velocity[rows], particles[rows] = fields[..., :2], fields[..., 2:3]
            force[rows] = fields[:, 0, ..., 3:]
            filled = rows.stop
        file["t"] = np.tile(self.grid.t.astype(np.float32), (n, 1))

    def stride(self, path: Path, file: h5py.File, min_samples: int) -> Stride:
        expect_datasets(path, file, ("velocity", "particles", "force", "t"))
        shape = expect_axes(path, file["velocity"], "samples, frames, points, points, 2")
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
        expect_samples(path, shape[0], min_samples)
        if shape[0] > MAX_GROUPS:
            raise DataError(f"{path}: expected at most {MAX_GROUPS} samples in a file, got {shape[0]}")
        frames = {
            frame_stride(path, "t", read(file["t"], row), shape[1], self.grid) for row in range(shape[0])
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
            moving = [read(array, chosen)[:, thinned, thinned] for array in (velocity, particles)]
            still = read(force, row)[thinned, thinned]
            whole = [*moving, np.broadcast_to(still, (len(moving[0]), *still.shape))]
            return np.moveaxis(np.concatenate(whole, axis=-1), -1, 1)

        return read_sample
