"""Stride: which of a file's points and frames are read, where it has more than are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from vastrun.contract.errors import DataError
from vastrun.trainer.data.pdebench import Grid


@dataclass(frozen=True, kw_only=True)
class Stride:
    """The first of so many, along each axis and in time."""

    points: int = 1
    frames: int = 1

    def rows(self, frames: slice) -> slice:
        """Return where frames, from the first of them to before the last, lie in the file."""
        return slice(frames.start * self.frames, (frames.stop - 1) * self.frames + 1, self.frames)

    def __str__(self) -> str:
        parts = (self.points, "points along an axis"), (self.frames, "frames")
        return " and ".join(f"1 of {stride} {name}" for stride, name in parts if stride > 1)


def of_points(path: Path, name: str, points: Sequence[int], grid: Grid) -> int:
    """Return the stride over an array's points along each axis.

    Raises DataError unless `grid` is some of them.
    """
    stride, rest = divmod(points[0], grid.points)
    if rest or not stride or len(set(points)) > 1:
        found = " x ".join(map(str, points))
        raise DataError(
            f"{path}: expected {grid.points} points along each axis or a multiple of them, "
            f"`{name}` has {found}"
        )
    return stride


def of_frames(path: Path, name: str, times: ArrayLike, frames: int, grid: Grid) -> int:
    """Return the stride over the frames.

    Raises DataError unless `grid` is some of them, from the first on.
    """
    first = np.asarray(times, np.float64)[:2]
    step = first[1] - first[0] if len(first) == 2 else np.nan
    stride = round(grid.dt / step) if step > 0 else 0
    # Times are often float32 sums: ten steps of 0.005 are not exactly 0.05.
    if not stride or not np.isclose(stride * step, grid.dt, rtol=1e-3):
        begin = ", ".join(f"{time:g}" for time in first)
        raise DataError(
            f"{path}: expected frames {grid.dt} apart or a whole part of that, `{name}` begins with {begin}"
        )
    needed = (grid.frames - 1) * stride + 1
    if needed > frames:
        raise DataError(f"{path}: expected {needed} frames for {grid.frames} of 1 in {stride}, got {frames}")
    return stride
