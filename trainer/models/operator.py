"""Operator: interface of a model that predicts the next field in physical units, for one or several tasks.

Shapes, here and in all models: B samples, K channels of the field, X its points by axis (one to three axes),
C conditions, N axes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class Domain:
    """Shapes of a task that a model is built for."""

    grid: tuple[int, ...]
    channels: int = 1
    static: int = 0
    """Number of the last channels, which do not change with time: a prediction has those of its input."""
    inputs: int | None = None
    """Input channels; None: the same number as output channels."""
    conditions: int
    periodic: bool = True
    """The domain continues on its other side along each axis; False: it has walls, or nothing is known."""
    steady: bool = False
    """The target is another field, not the next frame of the input."""
    patch: int | None = None
    """Points of a patch along an axis; None: `model.patch`."""


class Scale(nn.Module):
    """Conversion between physical units and the model's: input and target have their own means and
    deviations, which are part of the model's state."""

    mean: Tensor
    std: Tensor

    def __init__(self, domain: Domain) -> None:
        super().__init__()
        self.steady = domain.steady
        self.static = domain.static
        shape = (2, domain.channels, *(1,) * len(domain.grid))
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("std", torch.ones(shape))

    def reset_parameters(self) -> None:
        """Set all means to zero and all deviations to one."""
        nn.init.zeros_(self.mean)
        nn.init.ones_(self.std)

    def set(self, mean: Tensor, std: Tensor) -> None:
        """Set means and deviations (2, K): of the input, and of the target."""
        for buffer, value in ((self.mean, mean), (self.std, std)):
            buffer.copy_(value.reshape(buffer.shape))

    def normalise(self, u: Tensor) -> Tensor:
        """Return an input field (B, K, *X) in the model's units."""
        return (u - self.mean[0]) / self.std[0]

    def denormalise(self, change: Tensor, u: Tensor) -> Tensor:
        """Return the target (B, K, *X), or (B, K, Q) at points, from the model's output.

        The output is the change of the input `u`; of a steady problem, the difference from the mean.
        """
        shape = (-1, *(1,) * (change.ndim - 2))
        mean, std = self.mean[1].reshape(shape), self.std[1].reshape(shape)
        target = (mean if self.steady else u) + std * change
        return torch.cat([self.moving(target), u[:, -self.static :]], dim=1) if self.static else target

    def moving(self, fields: Tensor) -> Tensor:
        """Return the channels (B, K', ...) that change with time of fields (B, K, ...)."""
        return fields[:, : -self.static] if self.static else fields

    def perturb(self, u: Tensor, noise: Tensor) -> Tensor:
        """Add noise (B, K, *X) in units of the deviation to the channels of u that change with time."""
        noisy = u + self.std[0] * noise
        return torch.cat([self.moving(noisy), u[:, -self.static :]], dim=1) if self.static else noisy

    def normalised_change(self, target: Tensor, u: Tensor) -> Tensor:
        """Return the model output that gives a target (B, K, *X); the inverse of `denormalise`."""
        return (target - (self.mean[1] if self.steady else u)) / self.std[1]


class Operator(nn.Module, ABC):
    """Model that is rolled out, evaluated and saved: one network, or several that work together."""

    domains: tuple[Domain, ...]

    @abstractmethod
    def scale(self, task: int) -> Scale:
        """Return the scale of a task."""

    @abstractmethod
    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        """Map u (B, K, *X) and conditions (B, C) of a task, by number, to the target field, shaped like u."""


class Network(nn.Module, ABC):
    """Network that is sharded as a unit: its blocks, and the layers around them."""

    def __init__(self, domains: Sequence[Domain]) -> None:
        super().__init__()
        self.domains = tuple(domains)
        self.scales = nn.ModuleList(Scale(domain) for domain in domains)

    @property
    @abstractmethod
    def blocks(self) -> nn.ModuleList:
        """Blocks that hold most of the parameters; checkpointed, compiled and sharded one by one."""

    @property
    def codec(self) -> list[nn.Module]:
        """Modules that encode fields as tokens and decode them; empty for a model without tokens."""
        return []

    @property
    def fp32_modules(self) -> list[nn.Module]:
        """Modules that compute in fp32 whatever the precision of the training is."""
        return []

    @property
    def drawn_modules(self) -> list[nn.Module]:
        """Modules whose weights were drawn when they were built; the others are built on the meta device."""
        return []

    def scale(self, task: int) -> Scale:
        """Return the scale of a task."""
        scale = self.scales[task]
        assert isinstance(scale, Scale)
        return scale


class NetworkOperator(Network, Operator):
    """Network that predicts the change of a field. Untrained, it predicts persistence, or the mean solution
    of a steady problem."""

    @abstractmethod
    def predict_change(self, fields: Tensor, conditions: Tensor, task: int) -> Tensor:
        """Map normalised fields (B, K, *X) and conditions (B, C) to the change of those fields."""

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        scale = self.scale(task)
        return scale.denormalise(self.predict_change(scale.normalise(u), conditions, task), u)


def grid_points(grid: tuple[int, ...]) -> Tensor:
    """Return the centres of the cells of the unit domain: (*X, N)."""
    axes = [(torch.arange(points) + 0.5) / points for points in grid]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)
