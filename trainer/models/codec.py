"""Codec: maps fields to tokens, one per patch, and tokens back to fields.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, G patches by axis, N axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.operator import Domain, grid_points

_FREQUENCIES = 4


class PatchEncoder(nn.Module):
    """Linear map of each patch and of its position to a token."""

    position: Tensor

    def __init__(self, config: ModelConfig, domain: Domain) -> None:
        super().__init__()
        axes = len(domain.grid)
        self.size = patch_size(config, domain)
        self.tokens = tuple(points // side for points, side in zip(domain.grid, self.size, strict=True))
        self.periodic = domain.periodic
        self.register_buffer("position", torch.empty(math.prod(self.tokens), axes * 2 * _FREQUENCIES))
        self.content = nn.Linear((domain.inputs or domain.channels) * math.prod(self.size), config.dim)
        self.place = nn.Linear(axes * 2 * _FREQUENCIES, config.dim, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the position features; the submodules are already initialised."""
        self.position.copy_(
            position_features(grid_points(self.tokens).flatten(0, -2), periodic=self.periodic)
        )

    def forward(self, fields: Tensor) -> Tensor:
        """Map (B, K, *X) to (B, S, D)."""
        patches = to_patches(fields.movedim(1, -1), self.size).flatten(2)
        tokens: Tensor = self.content(patches) + self.place(self.position)
        return tokens


class PatchDecoder(nn.Module):
    """Linear map of each token to its patch."""

    def __init__(self, config: ModelConfig, domain: Domain) -> None:
        super().__init__()
        self.grid = domain.grid
        self.channels = domain.channels
        self.size = patch_size(config, domain)
        self.content = nn.Linear(config.dim, domain.channels * math.prod(self.size))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the head to zero: the output is zero at first."""
        nn.init.zeros_(self.content.weight)
        nn.init.zeros_(self.content.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Map tokens (B, S, D) to fields (B, K, *X)."""
        patches = self.content(tokens).unflatten(2, (-1, self.channels))
        return from_patches(patches, self.grid, self.size).movedim(-1, 1)


def patch_size(config: ModelConfig, domain: Domain) -> tuple[int, ...]:
    """Return the patch size in points, by axis."""
    return (domain.patch or config.patch,) * len(domain.grid)


def position_features(points: Tensor, *, periodic: bool) -> Tensor:
    """Return the features of points (Q, N) of the unit domain: (Q, N * 2 * _FREQUENCIES).

    Between walls the longest wave is twice the domain, so that both ends differ and a ramp from wall to wall
    is a sum of waves.
    """
    waves = torch.arange(1, _FREQUENCIES + 1)
    return fourier_features(points, waves if periodic else waves / 2)


def fourier_features(points: Tensor, frequencies: Tensor) -> Tensor:
    """Return Fourier features of points (Q, N): (Q, N * 2 * frequencies), sines before cosines."""
    angles = 2 * math.pi * points[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)


def to_patches(grid: Tensor, size: tuple[int, ...]) -> Tensor:
    """Cut a grid (B, *G, D) into patches of `size`: (B, patches, points of a patch, D), both row by row."""
    axes = len(size)
    for axis, points in enumerate(size):
        grid = grid.unflatten(1 + 2 * axis, (-1, points))
    outer, inner = range(1, 2 * axes, 2), range(2, 2 * axes + 1, 2)
    boxes = grid.permute(0, *outer, *inner, 2 * axes + 1)
    return boxes.flatten(1 + axes, 2 * axes).flatten(1, axes)


def from_patches(boxes: Tensor, grid: tuple[int, ...], size: tuple[int, ...]) -> Tensor:
    """Join patches to a grid (B, *G, D); the inverse of `to_patches`."""
    axes = len(size)
    counts = [points // step for points, step in zip(grid, size, strict=True)]
    apart = boxes.unflatten(2, size).unflatten(1, counts)
    pairs = [
        axis for pair in zip(range(1, 1 + axes), range(1 + axes, 1 + 2 * axes), strict=True) for axis in pair
    ]
    return apart.permute(0, *pairs, 2 * axes + 1).reshape(len(boxes), *grid, -1)
