"""Sizes: those of a task's data, as the job configures them."""

from __future__ import annotations

from dataclasses import dataclass

from vastrun.trainer.sampling.windows import Symmetry


@dataclass(frozen=True, kw_only=True)
class DataSizes:
    """Sizes of a task's data, as the job configures them."""

    frame_shape: tuple[int, ...]
    """Shape of a sample: (frames, channels, *points); a steady problem has two frames."""
    channels: tuple[str, ...]
    """Names of the channels; of a steady problem, input before target."""
    extent: tuple[float, float]
    """Bounds of the domain along each axis."""
    time_unit: str
    """Unit of time; empty where there is none."""
    steady: bool
    symmetry: Symmetry
    static: int
    conditions: int
    train: int
    """Training samples of all files together."""
    test: int
