"""Operator: one time step of a field in physical units, whatever computes it.

Shapes, here and in all models: B samples, K channels of the field, X its points by axis (one or two axes),
C conditions, N axes.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn


class Operator(nn.Module, ABC):
    """Predicts a change of the field. Freshly made it changes nothing: it predicts persistence."""

    mean: Tensor
    std: Tensor

    def __init__(self, grid: tuple[int, ...], channels: int) -> None:
        super().__init__()
        self.grid = grid
        self.channels = channels
        ones = (1,) * len(grid)
        self.register_buffer("mean", torch.zeros(channels, *ones))
        self.register_buffer("std", torch.ones(channels, *ones))

    def reset_parameters(self) -> None:
        """As freshly made; the modules within have had their turn."""
        nn.init.zeros_(self.mean)
        nn.init.ones_(self.std)

    def normalise_by(self, mean: float | Tensor, std: float | Tensor) -> None:
        """Takes the mean and the standard deviation of the data, of all channels or of each (K,).

        Both are part of the model's state.
        """
        for buffer, value in ((self.mean, mean), (self.std, std)):
            buffer.copy_(torch.as_tensor(value).reshape(-1, *buffer.shape[1:]))

    @property
    @abstractmethod
    def blocks(self) -> nn.ModuleList:
        """What most of the model is made of: recomputed, compiled and sharded one by one."""

    @property
    def exact(self) -> list[nn.Module]:
        """Modules that compute in fp32 whatever the precision of the training is."""
        return []

    @abstractmethod
    def change(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Normalised fields (B, K, *X) and conditions (B, C) to what is added to those fields."""

    def forward(self, u: Tensor, conditions: Tensor) -> Tensor:
        """u (B, K, *X), or (B, *X) of one channel, and conditions (B, C) to the next frame, shaped like u."""
        fields = u.reshape(len(u), self.channels, *self.grid)
        change = self.change((fields - self.mean) / self.std, conditions)
        return u + (self.std * change).reshape(u.shape)


def grid_points(grid: tuple[int, ...]) -> Tensor:
    """(*X, N): the centres of the cells of the unit domain."""
    axes = [(torch.arange(points) + 0.5) / points for points in grid]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)


def interpolated(fields: Tensor, points: Tensor) -> Tensor:
    """Fields (B, K, *X) of a periodic domain at points (Q, N) within [0, 1]: (B, K, Q), linear by axis."""
    grid = torch.tensor(fields.shape[2:], device=fields.device)
    places = points * grid - 0.5
    below = places.floor()
    value = fields.new_zeros(*fields.shape[:2], len(points))
    for corner in itertools.product((0, 1), repeat=len(grid)):
        step = torch.tensor(corner, device=fields.device)
        shares = torch.where(step == 1, places - below, 1 - places + below)
        cells = (below.long() + step) % grid
        value = value + shares.prod(dim=1) * fields[(..., *cells.unbind(1))]
    return value
