"""Trajectories as tensors, and windows cut out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import ClassVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.config import Keep
from trainer.sampling.windows import Picks

_CHUNK = 256


@dataclass(frozen=True, kw_only=True)
class Trajectories:
    """Solutions of a PDE, with what the model is told about each."""

    keep: ClassVar[Keep] = "device"
    """Where they lie while training."""

    fields: Tensor
    """(N, T, X) float32, in physical units."""
    conditions: Tensor
    """(N, C) float32: the logarithms of the PDE's parameter and of the time step."""

    @classmethod
    def of(cls, parts: Sequence[tuple[Sequence[float], NDArray]]) -> Trajectories:
        """All parts one after the other; each has one set of conditions."""
        conditions = [torch.tensor([row] * len(fields), dtype=torch.float32) for row, fields in parts]
        fields = [torch.from_numpy(fields) for _, fields in parts]
        return cls(fields=torch.cat(fields), conditions=torch.cat(conditions))

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def frames(self) -> int:
        return self.fields.shape[1]

    @property
    def points(self) -> int:
        return self.fields.shape[2]

    def moments(self) -> tuple[float, float]:
        """The mean and the standard deviation of all values."""
        return moments_of(self.fields.split(_CHUNK))

    def to(self, device: torch.device) -> Trajectories:
        return Trajectories(fields=self.fields.to(device), conditions=self.conditions.to(device))


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Short pieces of trajectories: one step's work."""

    fields: Tensor
    """(B, U + 1, X): the first frame is given, the others are to be predicted."""
    noise: Tensor
    """(B, X): added to the first frame, in units of the data's standard deviation."""
    conditions: Tensor
    """(B, C)"""

    def each(self, change: Callable[[Tensor], Tensor]) -> Windows:
        """The same windows with each tensor changed."""
        return Windows(**{name: change(tensor) for name, tensor in vars(self).items()})


class TrajectoryTask:
    """A task whose trajectories all fit on the device, on a periodic domain."""

    def __init__(self, train: Trajectories, test: Trajectories) -> None:
        self.train = train
        self.test = test

    def place(self, device: torch.device) -> None:
        self.train = self.train.to(device)
        self.test = self.test.to(device)

    def batch(self, step: int, picks: Picks) -> Windows:  # noqa: ARG002 - for tasks that wrap this one
        device = self.train.fields.device
        trajectory = _on(device, picks.trajectory)
        frames, columns = _on(device, picks.frames), _on(device, picks.columns)
        return Windows(
            fields=self.train.fields[trajectory[:, None, None], frames[:, :, None], columns[:, None, :]],
            noise=_on(device, picks.noise),
            conditions=self.train.conditions[trajectory],
        )


def moments_of(chunks: Iterable[Tensor]) -> tuple[float, float]:
    """The mean and the standard deviation of all values of all chunks, in float64."""
    count, total, squares = 0, 0.0, 0.0
    for chunk in chunks:
        values = chunk.double()
        count += values.numel()
        total += values.sum().item()
        squares += values.square().sum().item()
    mean = total / count
    return mean, sqrt((squares - count * mean**2) / (count - 1))


def _on(device: torch.device, array: NDArray) -> Tensor:
    tensor = torch.from_numpy(array)
    # From pinned memory the copy does not make the host wait for what the device still has to do.
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
