"""Trajectories as tensors, and windows cut out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.contract.config import Keep
from vastrun.trainer.data.samples import Samples
from vastrun.trainer.sampling.windows import BatchIndices, Symmetry, image_points

MOMENTS_CHUNK = 256


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Solutions of a PDE, with what the model is told about each."""

    keep: ClassVar[Keep] = "device"
    """Where they lie while training."""

    fields: Tensor
    """(N, T, K, *X) float32, in physical units. Steady: T is 2, what is given and what is asked for."""
    conditions: Tensor
    """(N, C) float32: the logarithms of the PDE's parameter, if any, and of the time step, if any."""
    symmetry: Symmetry = "none"
    steady: bool = False
    """There is no time."""

    @classmethod
    def of(cls, samples: Samples) -> Trajectories:
        """Read all of them at once. Raises DataError."""
        fields = torch.from_numpy(samples.read(range(len(samples))))
        return cls(
            fields=fields.reshape(-1, *samples.as_frames),
            conditions=torch.from_numpy(samples.parameters),
            symmetry=samples.symmetry,
            steady=samples.steady,
        )

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def frames(self) -> int:
        return self.fields.shape[1]

    @property
    def channels(self) -> int:
        return self.fields.shape[2]

    @property
    def grid(self) -> tuple[int, ...]:
        return self.fields.shape[3:]

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of each channel, (2, K) and (2, K).

        Of what is given, and of what is asked for. Where there is time, both are those of all frames.
        """
        return moments_of(self.fields.split(MOMENTS_CHUNK), steady=self.steady)

    def to(self, device: torch.device) -> Trajectories:
        return replace(self, fields=self.fields.to(device), conditions=self.conditions.to(device))


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Short pieces of trajectories: one step's work."""

    fields: Tensor
    """(B, U + 1, K, *X): the first frame is given, the others are to be predicted."""
    noise: Tensor
    """(B, K, *X): of the stage operator, added to the first frame, in units of the data's standard deviation;
    of other stages, standard normal."""
    level: Tensor
    """(B,): standard normal; how much of it, to stages that learn to remove it."""
    conditions: Tensor
    """(B, C)"""
    latents: Tensor | None = None
    """(B, S, D): what the encoder makes of the first frame, where that is known."""
    task: int = 0
    """Whose they are, all of them."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """By name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def each(self, change: Callable[[Tensor], Tensor]) -> Windows:
        """Return the same windows with each tensor changed."""
        return replace(self, **{name: change(tensor) for name, tensor in self.tensors.items()})


class TrajectoryTask:
    """A task whose trajectories all fit on the device."""

    def __init__(self, train: Trajectories, test: Trajectories) -> None:
        self.train = train
        self.test = test

    def place(self, device: torch.device) -> None:
        self.train = self.train.to(device)
        self.test = self.test.to(device)

    def batch(self, step: int, indices: BatchIndices) -> Windows:  # noqa: ARG002 - for tasks that wrap this one
        train, device = self.train, self.train.fields.device
        trajectory = on(device, indices.trajectory)
        # First the frames, then the points in them: both are quicker than one gather for all, and no whole
        # trajectory is copied.
        fields = train.fields.flatten(3)[trajectory[:, None], on(device, indices.frames)]
        if train.symmetry != "none":
            points = on(device, image_points(train.symmetry, train.grid, indices.image))
            fields = fields.gather(3, points[:, None, None].expand(-1, *fields.shape[1:3], -1))
        return Windows(
            fields=fields.unflatten(3, train.grid),
            noise=on(device, indices.noise),
            level=on(device, indices.level),
            conditions=train.conditions[trajectory],
        )


def moments_of(chunks: Iterable[Tensor], *, steady: bool) -> tuple[Tensor, Tensor]:
    """Return the moments, as of `Trajectories`, of chunks of fields; in float64."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for chunk in chunks:
        values = chunk.double()
        others = (0, *range(3, values.ndim)) if steady else (0, 1, *range(3, values.ndim))
        count += prod(values.shape[axis] for axis in others)
        total = total + values.sum(dim=others)
        squares = squares + values.square().sum(dim=others)
    mean = total / count
    std = ((squares - count * mean**2) / (count - 1)).sqrt()
    return (mean, std) if steady else (mean.expand(2, -1), std.expand(2, -1))


def on(device: torch.device, array: NDArray) -> Tensor:
    """Return the same numbers as a tensor there."""
    tensor = torch.from_numpy(array)
    # From pinned memory the copy does not make the host wait for what the device still has to do.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
