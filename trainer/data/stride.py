"""Stride: the points and frames that are read from a file with a finer grid than the job's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vastrun.trainer.data.pdebench import Fields, Grid
from vastrun.trainer.errors import DataError

_SPACING_TOLERANCE = 0.02
"""Largest deviation of a step along a coordinate, relative to the mean step; they are rounded to float32."""
_SIDE_TOLERANCE_STEPS = 2.5
"""Largest deviation of the domain's length, in steps: points may be cell centres or include the boundary."""


@dataclass(frozen=True, kw_only=True)
class Stride:
    """Every n-th point along each axis, or the mean of n, and every n-th frame."""

    points: int = 1
    frames: int = 1
    averaged: bool = False
    """True for the mean over a block of n points along each axis, False for its first point."""

    def rows(self, frames: slice) -> slice:
        """Return the slice of the file that holds these frames (start and stop)."""
        return slice(frames.start * self.frames, (frames.stop - 1) * self.frames + 1, self.frames)

    def coarsen(self, fields: Fields) -> Fields:
        """Return fields (T, *X, C) of the file at the points of the job."""
        axes = fields.ndim - 2
        if not self.averaged or self.points == 1:
            return fields[(slice(None), *[slice(None, None, self.points)] * axes)]
        for axis in range(1, 1 + axes):
            shape = fields.shape
            blocks = fields.reshape(*shape[:axis], -1, self.points, *shape[axis + 1 :])
            fields = blocks.mean(axis=axis + 1, dtype=np.float32)
        return fields

    @property
    def is_everything(self) -> bool:
        """True where all points and frames are read as they are."""
        return self.points == self.frames == 1

    def __str__(self) -> str:
        points = "means of" if self.averaged else "1 of"
        parts = (self.points, points, "points along an axis"), (self.frames, "1 of", "frames")
        return " and ".join(f"{how} {stride} {name}" for stride, how, name in parts if stride > 1)


def point_stride(path: Path, name: str, points: Sequence[int], grid: Grid) -> int:
    """Return the stride over an array's points along each axis.

    Raises DataError unless the number of points is a multiple of the grid's.
    """
    stride, rest = divmod(points[0], grid.points)
    if rest or not stride or len(set(points)) > 1:
        found = " x ".join(map(str, points))
        raise DataError(
            f"{path}: expected {grid.points} points along each axis or a multiple of them, "
            f"`{name}` has {found}"
        )
    return stride


def check_points(path: Path, name: str, values: ArrayLike, side: float) -> None:
    """Raise DataError unless the coordinate `values` ascends evenly over a domain of length `side`."""
    step = _even_step(path, name, np.asarray(values, np.float64))
    length = step * np.size(values)
    if abs(length - side) > _SIDE_TOLERANCE_STEPS * step:
        raise DataError(
            f"{path}: expected `{name}` to cover a length of {side:g}, got {length:.4g}: "
            "are its units different?"
        )


def frame_stride(path: Path, name: str, times: ArrayLike, frames: int, grid: Grid) -> int:
    """Return the stride over the frames, whose times are the first `frames` of `times`.

    Raises DataError unless the times ascend evenly and the grid's frames are among them, from the first on.
    """
    first = np.asarray(times, np.float64)[:frames]
    # Of two frames the later one is a step away; a single frame has none.
    step = _even_step(path, name, first) if len(first) > 1 else np.nan
    stride = round(grid.dt / step) if step > 0 else 0
    # Times are often float32 sums: ten steps of 0.005 are not exactly 0.05.
    if not stride or not np.isclose(stride * step, grid.dt, rtol=1e-3):
        begin = ", ".join(f"{time:g}" for time in first[:2])
        raise DataError(
            f"{path}: expected frames {grid.dt} apart or a fraction 1/n of that, `{name}` starts with {begin}"
        )
    needed = (grid.frames - 1) * stride + 1
    if needed > frames:
        raise DataError(f"{path}: expected {needed} frames for {grid.frames} of 1 in {stride}, got {frames}")
    return stride


def _even_step(path: Path, name: str, values: NDArray[np.float64]) -> float:
    """Return the step of a coordinate with several values. Raises DataError unless it ascends evenly."""
    steps = np.diff(values)
    if not np.isfinite(values).all() or not (steps > 0).all():
        place = int(np.flatnonzero(~(steps > 0))[0]) if not (steps > 0).all() else 0
        raise DataError(
            f"{path}: expected `{name}` to ascend, got {values[place]:g} and then {values[place + 1]:g} "
            f"at place {place}"
        )
    step = float(steps.mean())
    if np.abs(steps - step).max() > _SPACING_TOLERANCE * step:
        raise DataError(
            f"{path}: expected equal steps in `{name}`, got steps from {steps.min():g} to {steps.max():g}"
        )
    return step
