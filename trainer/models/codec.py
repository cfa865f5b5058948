"""Codec: fields to tokens, a patch each, and tokens back to fields.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, G patches by axis, N axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vastrun.contract.config import ModelConfig
from vastrun.trainer.models.operator import Domain, grid_points

_FREQUENCIES = 4


class PatchEncoder(nn.Module):
    """A linear map of each patch, and of where it lies."""

    position: Tensor

    def __init__(self, config: ModelConfig, domain: Domain) -> None:
        super().__init__()
        axes = len(domain.grid)
        self.size = _patch(config, domain)
        self.tokens = tuple(points // side for points, side in zip(domain.grid, self.size, strict=True))
        self.register_buffer("position", torch.empty(math.prod(self.tokens), axes * 2 * _FREQUENCIES))
        self.content = nn.Linear((domain.inputs or domain.channels) * math.prod(self.size), config.dim)
        self.place = nn.Linear(axes * 2 * _FREQUENCIES, config.dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the positions; the modules within have had their turn."""
        centres = grid_points(self.tokens).flatten(0, -2)
        self.position.copy_(fourier(centres, torch.arange(1, _FREQUENCIES + 1)))

    def forward(self, fields: Tensor) -> Tensor:
        """Map (B, K, *X) to (B, S, D)."""
        patches = blocked(fields.movedim(1, -1), self.size).flatten(2)
        tokens: Tensor = self.content(patches) + self.place(self.position)
        return tokens


class PatchDecoder(nn.Module):
    """A linear map of each token to its patch."""

    def __init__(self, config: ModelConfig, domain: Domain) -> None:
        super().__init__()
        self.grid = domain.grid
        self.channels = domain.channels
        self.size = _patch(config, domain)
        self.content = nn.Linear(config.dim, domain.channels * math.prod(self.size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the head to zero: all fields are zero at first."""
        nn.init.zeros_(self.content.weight)
        nn.init.zeros_(self.content.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, S, D) to fields (B, K, *X)."""
        patches = self.content(tokens).unflatten(2, (-1, self.channels))
        return joined(patches, self.grid, self.size).movedim(-1, 1)


def _patch(config: ModelConfig, domain: Domain) -> tuple[int, ...]:
    """Return the points of a patch, by axis."""
    return (domain.patch or config.patch,) * len(domain.grid)


def fourier(points: Tensor, frequencies: Tensor) -> Tensor:
    """Put points (Q, N) on the unit circle of each axis: (Q, N * 2 * frequencies), sines before cosines."""
    angles = 2 * math.pi * points[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)


def blocked(grid: Tensor, size: tuple[int, ...]) -> Tensor:
    """Cut a grid (B, *G, D) into boxes of `size`: (B, boxes, points of a box, D), both row by row."""
    axes = len(size)
    for axis, points in enumerate(size):
        grid = grid.unflatten(1 + 2 * axis, (-1, points))
    outer, inner = range(1, 2 * axes, 2), range(2, 2 * axes + 1, 2)
    boxes = grid.permute(0, *outer, *inner, 2 * axes + 1)
    return boxes.flatten(1 + axes, 2 * axes).flatten(1, axes)


def joined(boxes: Tensor, grid: tuple[int, ...], size: tuple[int, ...]) -> Tensor:
    """Put together what `blocked` took apart: (B, *G, D)."""
    axes = len(size)
    counts = [points // step for points, step in zip(grid, size, strict=True)]
    apart = boxes.unflatten(2, size).unflatten(1, counts)
    pairs = [
        axis for pair in zip(range(1, 1 + axes), range(1 + axes, 1 + 2 * axes), strict=True) for axis in pair
    ]
    return apart.permute(0, *pairs, 2 * axes + 1).reshape(len(boxes), *grid, -1)
