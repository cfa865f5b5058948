"""Planes: the cuts through a field that pictures show, and the coordinates along their axes.

Lines and squares are shown whole; fields with more axes in the planes through their middle.
"""

from dataclasses import dataclass
from itertools import combinations
from typing import Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer import data
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig

_NAMES = "xyz"
_SHOWN_AXES = 2
"""Largest number of axes in one picture."""


@dataclass(frozen=True, kw_only=True)
class SpaceAxis:
    """One axis of a task's domain, in the units of its data."""

    name: str
    low: float
    high: float
    points: int

    @property
    def centres(self) -> NDArray[np.float64]:
        """Coordinates of the points: centres of the cells."""
        return self.low + (np.arange(self.points) + 0.5) / self.points * (self.high - self.low)


@dataclass(frozen=True, kw_only=True)
class Coordinates:
    """Names and values of a task's coordinates in space and time."""

    axes: tuple[SpaceAxis, ...]
    time: str = "frame"
    time_unit: str = ""
    dt: float = 1.0
    """Time between two frames; 1 where the frames are counted."""
    channels: tuple[str, ...] = ()
    """Names of the channels; empty where they have none."""

    @classmethod
    def of(cls, config: DataConfig, grid: tuple[int, ...]) -> Self:
        """Return the coordinates of a built-in task; those of a user's task count points and frames."""
        names = [_NAMES[axis] if axis < len(_NAMES) else f"axis {axis}" for axis in range(len(grid))]
        if config.task not in PARAMETERS:
            return cls(
                axes=tuple(
                    SpaceAxis(name=f"{name}, point", low=-0.5, high=points - 0.5, points=points)
                    for name, points in zip(names, grid, strict=True)
                )
            )
        sizes = data.data_sizes(config)
        low, high = sizes.extent
        return cls(
            axes=tuple(
                SpaceAxis(name=name, low=low, high=high, points=points)
                for name, points in zip(names, grid, strict=True)
            ),
            time="t",
            time_unit=sizes.time_unit,
            dt=config.dt,
            channels=sizes.channels,
        )

    @property
    def counts_frames(self) -> bool:
        """Tell whether frames are counted because their times are unknown."""
        return self.time == "frame"

    def at(self, frame: int) -> str:
        """Return the time of a frame, as in `t = 0.5`."""
        if self.counts_frames:
            return f"{self.time} {frame}"
        return f"{self.time} = {frame * self.dt:.4g} {self.time_unit}".rstrip()

    @property
    def time_label(self) -> str:
        """Name of the axis of time, with its unit."""
        return f"{self.time} [{self.time_unit}]" if self.time_unit else self.time


@dataclass(frozen=True, kw_only=True)
class Plane:
    """Axes that are shown, and the point of each other axis."""

    shown: tuple[int, ...]
    points: tuple[int | None, ...]
    """Point by axis; None for an axis that is shown."""

    def cut(self, fields: Tensor) -> Tensor:
        """Cut fields (..., *X) to the axes that are shown."""
        return fields[(..., *(slice(None) if point is None else point for point in self.points))]

    def label(self, axes: tuple[SpaceAxis, ...]) -> str:
        """Return where the plane is, as in `z = 0.51`; empty when nothing is cut off."""
        where = zip(axes, self.points, strict=True)
        return ", ".join(f"{axis.name} = {axis.centres[n]:.3g}" for axis, n in where if n is not None)


def planes_of(grid: tuple[int, ...]) -> tuple[Plane, ...]:
    """Return the planes to show of a grid: the whole, or each pair of axes in the middle of the others."""
    count = len(grid)
    return tuple(
        Plane(
            shown=shown,
            points=tuple(None if axis in shown else points // 2 for axis, points in enumerate(grid)),
        )
        for shown in combinations(range(count), min(count, _SHOWN_AXES))
    )
