"""Trajectories and windows: tensors of whole solutions, and the short pieces that a step trains on."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Self

import torch
from numpy.typing import NDArray
from torch import Tensor

from vastrun.trainer.data.samples import Samples, rows_at_once
from vastrun.trainer.job.data_config import Keep
from vastrun.trainer.sampling.windows import BatchIndices, Symmetry, image_points


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Solutions of a PDE, with the conditions of each."""

    keep: ClassVar[Keep] = "device"
    """Place of the tensors while training."""

    fields: Tensor
    """(N, T, K, *X) float32, in physical units. Steady: T is 2, input and target."""
    conditions: Tensor
    """(N, C) float32: the logarithms of the PDE's parameter, if any, and of the time step, if any."""
    symmetry: Symmetry = "none"
    static: int = 0
    """Number of the last channels, which do not change with time: they are given, and not scored."""
    steady: bool = False
    """True for a problem without time."""

    @classmethod
    def of(cls, samples: Samples) -> Self:
        """Read all samples into memory. Raises DataError."""
        fields = torch.from_numpy(samples.read(range(len(samples))))
        return cls(
            fields=fields.reshape(-1, *samples.frame_shape),
            conditions=torch.from_numpy(samples.parameters),
            symmetry=samples.symmetry,
            static=samples.static,
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
        """Return mean and standard deviation of each channel, (2, K) and (2, K): of input and target.

        For a problem with time both are those of all frames.
        """
        size, frames = moments_chunk(self.frames, self.fields[0, 0].numel(), steady=self.steady)
        chunks = (part for chunk in self.fields.split(size) for part in chunk.split(frames, dim=1))
        return moments_of(chunks, steady=self.steady)

    def to(self, device: torch.device) -> Self:
        return replace(self, fields=self.fields.to(device), conditions=self.conditions.to(device))


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Batch of windows: short pieces of trajectories."""

    fields: Tensor
    """(B, U + 1, K, *X): the first frame is the input, the others are targets."""
    noise: Tensor
    """(B, K, *X): in the stage `operator`, noise for the first frame in units of the data's standard
    deviation; in the other stages, standard normal noise."""
    level: Tensor
    """(B,): standard normal; diffusion stages compute the noise level from it."""
    conditions: Tensor
    """(B, C)"""
    task: int = 0
    """Number of the task of all windows."""

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Tensors by field name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Apply `change` to each tensor."""
        return replace(self, **{name: change(tensor) for name, tensor in self.tensors.items()})


class TrajectoryTask:
    """Task whose trajectories are all on the device."""

    def __init__(self, train: Trajectories, test: Trajectories, unseen: Trajectories | None = None) -> None:
        self.train = train
        self.test = test
        self.unseen = unseen
        """Test samples at parameters that are not trained; None: there are none."""

    def place(self, device: torch.device) -> None:
        self.train = self.train.to(device)
        self.test = self.test.to(device)
        self.unseen = self.unseen and self.unseen.to(device)

    def batch(self, step: int, indices: BatchIndices) -> Windows:  # noqa: ARG002 - for tasks that wrap this one
        train, device = self.train, self.train.fields.device
        trajectory = to_device(device, indices.trajectory)
        # First the frames, then their points: two steps are faster than one gather, and no whole trajectory
        # is copied.
        fields = train.fields.flatten(3)[trajectory[:, None], to_device(device, indices.frames)]
        if train.symmetry != "none":
            points = to_device(device, image_points(train.symmetry, train.grid, indices.image))
            fields = fields.gather(3, points[:, None, None].expand(-1, *fields.shape[1:3], -1))
        return Windows(
            fields=fields.unflatten(3, train.grid),
            noise=to_device(device, indices.noise),
            level=to_device(device, indices.level),
            conditions=train.conditions[trajectory],
        )


def moments_chunk(frames: int, values: int, *, steady: bool) -> tuple[int, int]:
    """Return the trajectories and frames of a chunk for `moments_of`, for `values` in a frame.

    The two frames of a steady problem stay together.
    """
    trajectories = rows_at_once(frames * values, max_rows=256)
    return trajectories, frames if steady else rows_at_once(trajectories * values, frames)


def moments_of(chunks: Iterable[Tensor], *, steady: bool) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of chunks of fields, as `Trajectories.moments`; in float64."""
    count, total, squares = 0, torch.zeros(()), torch.zeros(())
    for chunk in chunks:
        values = chunk.double()
        axes = (0, *range(3, values.ndim)) if steady else (0, 1, *range(3, values.ndim))
        count += prod(values.shape[axis] for axis in axes)
        total = total + values.sum(dim=axes)
        squares = squares + values.square().sum(dim=axes)
    mean = total / count
    std = ((squares - count * mean**2) / (count - 1)).sqrt()
    return (mean, std) if steady else (mean.expand(2, -1), std.expand(2, -1))


def to_device(device: torch.device, array: NDArray) -> Tensor:
    """Copy a numpy array to the device."""
    tensor = torch.from_numpy(array)
    # From pinned memory the copy does not make the host wait for the device's earlier work.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
