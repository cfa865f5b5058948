"""Data config: the tasks of the `train:` section, their PDEs' parameters and their data. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Literal

from vastrun.contract.limits import Count, Ge, Le, MinLen, Positive, Seed

Keep = Literal["device", "host", "disk"]

ParameterKey = Literal["betas", "nus", "rhos", "etas", "machs", "sources"]
MAX_RANGE_VALUES = 16
"""More values of a parameter have no scores of their own."""
PARAMETERS: Mapping[str, tuple[ParameterKey, ...]] = {
    "advection": ("betas",),
    "burgers": ("nus",),
    "compressible_1d": ("etas",),
    "compressible_2d": ("machs", "etas"),
    "compressible_3d": ("machs", "etas"),
    "darcy": ("sources",),
    "diffusion_reaction": (),
    "diffusion_sorption": (),
    "incompressible": (),
    "reaction_diffusion": ("nus", "rhos"),
    "shallow_water": (),
}
"""Built-in tasks, each with the keys that list the values of its PDE's parameters."""
_AXES = {
    "compressible_2d": 2,
    "compressible_3d": 3,
    "darcy": 2,
    "diffusion_reaction": 2,
    "incompressible": 2,
    "shallow_water": 2,
}
"""Axes of the grids of built-in tasks that have more than one."""
_CHANNELS = {
    "compressible_1d": 3,
    "compressible_2d": 4,
    "compressible_3d": 5,
    "diffusion_reaction": 2,
    "incompressible": 5,
}
"""Channels of a frame of built-in tasks that have more than one; a steady problem has two frames."""


_DIGITS = 4
"""Significant digits of the values within a range, which are part of file names."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """One task and its data set, which a built-in solver generates when its file does not exist."""

    task: str = "advection"
    """A built-in task, or `module:function` in the user's code (see trainer/data/__init__.py)."""
    betas: Annotated[tuple[Positive, ...], MinLen(1)] = (0.4, 1.0)
    """Speeds of `advection`. Each value has its own file, like those of the other parameters."""
    nus: Annotated[tuple[Positive, ...], MinLen(1)] = (0.01, 0.1)
    """Viscosities of `burgers`, diffusivities of `reaction_diffusion`."""
    rhos: Annotated[tuple[Positive, ...], MinLen(1)] = (1.0,)
    """Growth rates of `reaction_diffusion`, whose files have all combinations with `nus`."""
    etas: Annotated[tuple[Positive, ...], MinLen(1)] = (0.01,)
    """Viscosities of `compressible_1d`, `_2d` and `_3d`; shear and bulk viscosity are equal."""
    machs: Annotated[tuple[Positive, ...], MinLen(1)] = (0.1,)
    """Mach numbers of `compressible_2d` and `_3d`, whose files have all combinations with `etas`."""
    sources: Annotated[tuple[Positive, ...], MinLen(1)] = (1.0,)
    """Source terms of `darcy`; PDEBench calls them beta. The solution is proportional to it."""
    ranges: Mapping[ParameterKey, tuple[Positive, Positive]] = field(default_factory=dict)
    """Lowest and highest value of parameters that are sampled in training, each instead of its list."""
    range_values: Annotated[int, Ge(2), Le(MAX_RANGE_VALUES)] = MAX_RANGE_VALUES
    """Values of each range, evenly spaced in the logarithm; each has its own initial conditions."""
    unseen: Mapping[ParameterKey, tuple[Positive, ...]] = field(default_factory=dict)
    """Values of parameters that are tested on and not trained: `test` samples of each."""
    train: Count = 256
    """Initial conditions, or coefficients, to train on, per file."""
    keep: Keep = "device"
    """Place of the training data: on the GPU, in memory that the ranks share, or in their files."""
    validation: Annotated[int, Ge(0)] = 0
    """Number of `train`, per file, that are held out: `evaluate_every` rolls them out."""
    test: Count = 64
    """Initial conditions, or coefficients, to test on, per file."""
    points: Annotated[int, Ge(16)] = 64
    """Points of the grid along an axis."""
    frames: Annotated[int, Ge(2)] = 21
    """Points in time, including the first one."""
    dt: Positive = 0.1
    """Time between two frames."""
    seed: Seed = 2022
    """Seed of the initial conditions."""
    patch: Count | None = None
    """Points of a patch along an axis, for this task; None: `model.patch`."""

    @property
    def steady(self) -> bool:
        """Tell whether this is a built-in task whose problem has no time."""
        return self.task == "darcy"

    @property
    def axes(self) -> int:
        """Return the number of the grid's axes; 1 for a user's task, which may have any number."""
        return _AXES.get(self.task, 1)

    @property
    def file_gb(self) -> float:
        """Return the GB of each file that a built-in task's solver writes; 0 for a user's task."""
        if self.task not in PARAMETERS:
            return 0.0
        frames = 2 if self.steady else self.frames
        values = frames * _CHANNELS.get(self.task, 1) * self.points**self.axes
        return (self.train + self.test) * values * 4 / 1e9

    def parameters_of(self, task: str) -> tuple[tuple[float, ...], ...]:
        """Return the parameters of each file of a built-in task: all combinations of its keys' values."""
        return tuple(product(*map(self.values_of, PARAMETERS[task])))

    def unseen_parameters_of(self, task: str) -> tuple[tuple[float, ...], ...]:
        """Return the PDE's parameters that are only tested on: `unseen` replaces the trained values."""
        keys = PARAMETERS[task]
        if self.unseen.keys().isdisjoint(keys):
            return ()
        return tuple(product(*(self.unseen.get(key, self.values_of(key)) for key in keys)))

    def values_of(self, key: ParameterKey) -> tuple[float, ...]:
        """Return the values of a parameter that are trained."""
        bounds = self.ranges.get(key)
        if bounds is None:
            values: tuple[float, ...] = getattr(self, key)
            return values
        (low, high), last = bounds, self.range_values - 1
        return tuple(float(f"{low * (high / low) ** (n / last):.{_DIGITS}g}") for n in range(last + 1))

    def has_ranges(self, task: str) -> bool:
        """Tell whether parameters of a built-in task are sampled from a range."""
        return not self.ranges.keys().isdisjoint(PARAMETERS[task])
