"""Codec: fields to tokens, a patch each, and tokens back to fields, on the grid or at any points.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, Q points that are asked for,
N axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from trainer.contract.config import ModelConfig
from trainer.models.attention import CrossAttention, blocked, joined
from trainer.models.operator import Domain, grid_points, interpolated

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
    """A linear map of each token to its patch; between the points of the grid, linear interpolation."""

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

    def forward(self, tokens: Tensor, points: Tensor | None = None) -> Tensor:
        """Map tokens (B, S, D) to fields (B, K, *X), or to their values (B, K, Q) at points (Q, N)."""
        patches = self.content(tokens).unflatten(2, (-1, self.channels))
        fields = joined(patches, self.grid, self.size).movedim(-1, 1)
        return fields if points is None else interpolated(fields, points)


class PointDecoder(nn.Module):
    """Points attend to all tokens, by codes of where they are: as fine as the grid, and no patches."""

    points: Tensor
    frequencies: Tensor

    def __init__(self, config: ModelConfig, domain: Domain) -> None:
        super().__init__()
        self.grid = grid = domain.grid
        octaves = max(1, int(math.log2(max(grid))))
        self.register_buffer("points", torch.empty(math.prod(grid), len(grid)))
        self.register_buffer("frequencies", torch.empty(octaves))
        self.query = nn.Linear(len(grid) * 2 * octaves, config.dim)
        self.attention = CrossAttention(config.dim, config.heads)
        self.norm = nn.LayerNorm(config.dim)
        hidden = config.mlp_ratio * config.dim
        self.mlp = nn.Sequential(nn.Linear(config.dim, hidden), nn.GELU(), nn.Linear(hidden, config.dim))
        self.head = nn.Linear(config.dim, domain.channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the head to zero: all fields are zero at first."""
        self.points.copy_(grid_points(self.grid).flatten(0, -2))
        self.frequencies.copy_(2.0 ** torch.arange(len(self.frequencies)))
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, tokens: Tensor, points: Tensor | None = None) -> Tensor:
        """Map tokens (B, S, D) to fields (B, K, *X), or to their values (B, K, Q) at points (Q, N)."""
        places = self.points if points is None else points
        query = self.query(fourier(places, self.frequencies)).expand(len(tokens), -1, -1)
        x = query + self.attention(query, tokens)
        values: Tensor = self.head(x + self.mlp(self.norm(x))).transpose(1, 2)
        return values.unflatten(2, self.grid) if points is None else values


DECODERS: dict[str, type[PatchDecoder | PointDecoder]] = {"patch": PatchDecoder, "point": PointDecoder}


def _patch(config: ModelConfig, domain: Domain) -> tuple[int, ...]:
    """Return the points of a patch, by axis."""
    return (domain.patch or config.patch,) * len(domain.grid)


def fourier(points: Tensor, frequencies: Tensor) -> Tensor:
    """Put points (Q, N) on the unit circle of each axis: (Q, N * 2 * frequencies), sines before cosines."""
    angles = 2 * math.pi * points[..., None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1).flatten(1)
