"""Latent operator: encodes patches of a field as tokens, processes them, and decodes the next field.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, C conditions, G patches by
axis, N axes.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.operator import Domain, Network, NetworkOperator, grid_points

_FREQUENCIES = 4


class TransformerStack(nn.Module):
    """Stack of blocks in which every token attends to all tokens."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map x (B, S, D) and condition (B, D) to (B, S, D)."""
        for block in self.blocks:
            x = block(x, condition)
        return x


class LatentNetwork(Network):
    """Encoder, core and decoder, learned together. The conditions modulate each block.

    Each task has its own encoder, decoder and condition encoder; the core is shared.
    """

    def __init__(self, config: ModelConfig, domains: Sequence[Domain]) -> None:
        super().__init__(domains)
        self.encoders = nn.ModuleList(PatchEncoder(config, domain) for domain in domains)
        self.condition_encoders = nn.ModuleList(
            nn.Sequential(
                nn.Linear(domain.conditions, config.dim),
                nn.SiLU(),
                nn.Linear(config.dim, config.dim),
                nn.SiLU(),
            )
            for domain in domains
        )
        self.core = TransformerStack(config)
        self.norm = nn.LayerNorm(config.dim)
        self.decoders = nn.ModuleList(PatchDecoder(config, domain) for domain in domains)

    @property
    def blocks(self) -> nn.ModuleList:
        """Blocks of the core."""
        return self.core.blocks

    @property
    def codec(self) -> list[nn.Module]:
        """Encoders and decoders of all tasks."""
        return [*self.encoders, *self.decoders]

    def predict_change(self, fields: Tensor, conditions: Tensor, task: int) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X)."""
        tokens = self.encoders[task](fields)
        condition = self.condition_encoders[task](conditions)
        moved = self.norm(self.core(tokens, condition))
        change: Tensor = self.decoders[task](moved)
        return change


class LatentOperator(LatentNetwork, NetworkOperator):
    """Latent network that predicts the change of a field."""


class Block(nn.Module):
    """A pre-norm transformer block modulated by the conditions (AdaLN-zero, Peebles & Xie 2023)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden = config.mlp_ratio * config.dim
        self.norm_attention = nn.LayerNorm(config.dim, elementwise_affine=False)
        self.attention = Attention(config.dim, config.heads)
        self.norm_mlp = nn.LayerNorm(config.dim, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(config.dim, hidden), nn.GELU(), nn.Linear(hidden, config.dim))
        self.modulation = nn.Linear(config.dim, 6 * config.dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the modulation to zero: the block is the identity at first."""
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map x (B, S, D) and condition (B, D) to (B, S, D)."""
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.modulation(condition)[:, None, :].chunk(
            6, dim=-1
        )
        x = x + gate_a * self.attention(self.norm_attention(x) * (1 + scale_a) + shift_a)
        return x + gate_m * self.mlp(self.norm_mlp(x) * (1 + scale_m) + shift_m)


class Attention(nn.Module):
    """Self-attention over all tokens, with queries and keys normalised per head."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.norm_q = HeadNorm(dim // heads)
        self.norm_k = HeadNorm(dim // heads)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (B, S, D) to (B, S, D)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(self.norm_q(q), self.norm_k(k), v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class HeadNorm(nn.RMSNorm):
    """RMSNorm in the type of its input, (..., E): with another type of weight it has no fast kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


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
    angles = 2 * math.pi * points[..., None] * (waves if periodic else waves / 2)
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
