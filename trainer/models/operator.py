"""Operator: what a field is next, in physical units, whatever computes it; for one task or several.

Shapes, here and in all models: B samples, K channels of the field, X its points by axis (one or two axes),
C conditions, N axes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Domain:
    """What a model must know of a task."""

    grid: tuple[int, ...]
    channels: int = 1
    inputs: int | None = None
    """Channels that are given, where they are not as many as are asked for."""
    conditions: int
    steady: bool = False
    """The field that is asked for is another than the one that is given, and not its next frame."""
    patch: int | None = None
    """Points of a patch along an axis, where it is not the model's own."""


class Scale(nn.Module):
    """Physical units to those of the model, and back: what is given and what is asked for by their own means
    and deviations, which are part of the model's state."""

    mean: Tensor
    std: Tensor

    def __init__(self, domain: Domain) -> None:
        super().__init__()
        self.steady = domain.steady
        shape = (2, domain.channels, *(1,) * len(domain.grid))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("std", torch.ones(shape))

    def reset_parameters(self) -> None:
        """Set the units to one."""
        nn.init.zeros_(self.mean)
        nn.init.ones_(self.std)

    def set(self, mean: Tensor, std: Tensor) -> None:
        """Set both units (2, K): of what is given, and of what is asked for."""
        for buffer, value in ((self.mean, mean), (self.std, std)):
            buffer.copy_(value.reshape(buffer.shape))

    def into(self, given: Tensor) -> Tensor:
        """Return a field that is given (B, K, *X) in the model's units."""
        return (given - self.mean[0]) / self.std[0]

    def out(self, change: Tensor, given: Tensor) -> Tensor:
        """Return what is asked for (B, K, *X), or (B, K, Q) at points, from what the model says of it.

        The model says the change of what is given, or where there is no time, how it differs from the mean.
        """
        shape = (-1, *(1,) * (change.ndim - 2))
        mean, std = self.mean[1].reshape(shape), self.std[1].reshape(shape)
        return (mean if self.steady else given) + std * change

    def change(self, asked: Tensor, given: Tensor) -> Tensor:
        """Return what the model said of a field that was asked for (B, K, *X)."""
        return (asked - (self.mean[1] if self.steady else given)) / self.std[1]


class Operator(nn.Module, ABC):
    """What is rolled out, evaluated and saved: one network, or several that answer together."""

    domains: tuple[Domain, ...]

    @abstractmethod
    def scale(self, task: int) -> Scale:
        """Return the scale of a task."""

    @abstractmethod
    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        """Map u (B, K, *X) and conditions (B, C) of a task, by number, to what is asked for, shaped as u."""


class Network(nn.Module, ABC):
    """What is spread over the ranks as one: its blocks, and what is around them."""

    def __init__(self, domains: Sequence[Domain]) -> None:
        super().__init__()
        self.domains = tuple(domains)
        self.scales = nn.ModuleList(Scale(domain) for domain in domains)

    @property
    @abstractmethod
    def blocks(self) -> nn.ModuleList:
        """What most of the network is made of: recomputed, compiled and sharded one by one."""

    @property
    def codec(self) -> list[nn.Module]:
        """What turns fields into tokens and tokens into fields, where there are any."""
        return []

    @property
    def exact(self) -> list[nn.Module]:
        """Modules that compute in fp32 whatever the precision of the training is."""
        return []

    def scale(self, task: int) -> Scale:
        """Return the scale of a task."""
        scale = self.scales[task]
        assert isinstance(scale, Scale)
        return scale


class NetworkOperator(Network, Operator):
    """Predicts a change of the field. Freshly made it changes nothing: it predicts persistence, or the mean
    of what solves a steady problem."""

    @abstractmethod
    def predict_change(self, fields: Tensor, conditions: Tensor, task: int) -> Tensor:
        """Map normalised fields (B, K, *X) and conditions (B, C) to what is added to those fields."""

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        scale = self.scale(task)
        return scale.out(self.predict_change(scale.into(u), conditions, task), u)


def grid_points(grid: tuple[int, ...]) -> Tensor:
    """Return the centres of the cells of the unit domain: (*X, N)."""
    axes = [(torch.arange(points) + 0.5) / points for points in grid]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
