"""Attention, and the transformer block around it.

Shapes: B samples, S tokens, D channels, H heads, E = D / H channels of a head, W tokens of a window, N axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.contract.config import ModelConfig
from trainer.models.operator import grid_points

_BIAS_HIDDEN = 64


class Block(nn.Module):
    """A pre-norm transformer block modulated by the conditions (AdaLN-zero, Peebles & Xie 2023)."""

    def __init__(self, config: ModelConfig, attention: nn.Module) -> None:
        super().__init__()
        hidden = config.mlp_ratio * config.dim
        self.norm_attention = nn.LayerNorm(config.dim, elementwise_affine=False)
        self.attention = attention
        self.norm_mlp = nn.LayerNorm(config.dim, elementwise_affine=False)
        self.mlp = nn.Sequential(nn.Linear(config.dim, hidden), nn.GELU(), nn.Linear(hidden, config.dim))
        self.modulation = nn.Linear(config.dim, 6 * config.dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the modulation to zero: the block changes nothing at first."""
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

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Map x (B, S, D), and a bias (H, S, S) of the weights, to (B, S, D)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mask = None if bias is None else bias.to(v.dtype)
        mixed = functional.scaled_dot_product_attention(self.norm_q(q), self.norm_k(k), v, attn_mask=mask)
        return self.out(mixed.transpose(1, 2).flatten(2))


class WindowAttention(nn.Module):
    """Self-attention within windows of a grid of tokens, biased by where tokens are to each other.

    A shifted layer's windows overlap those of the one before, around the ends too: the domain is periodic.
    """

    def __init__(self, config: ModelConfig, tokens: tuple[int, ...], *, shifted: bool) -> None:
        super().__init__()
        self.tokens = tokens
        self.window = tuple(min(config.window, count) for count in tokens)
        self.shift = tuple(size // 2 if shifted else 0 for size in self.window)
        self.attention = Attention(config.dim, config.heads)
        self.bias = RelativeBias(self.window, config.heads)

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, S, D) to (B, S, D)."""
        axes = tuple(range(1, 1 + len(self.tokens)))
        grid = x.unflatten(1, self.tokens).roll([-shift for shift in self.shift], axes)
        mixed = self.attention(blocked(grid, self.window).flatten(0, 1), self.bias())
        windows = mixed.unflatten(0, (len(x), -1))
        return joined(windows, self.tokens, self.window).roll(self.shift, axes).flatten(1, -2)


class RelativeBias(nn.Module):
    """A bias by the distance of two tokens, on a logarithmic scale (Liu et al. 2022, Swin V2)."""

    distances: Tensor

    def __init__(self, window: tuple[int, ...], heads: int) -> None:
        super().__init__()
        self.window = window
        self.register_buffer("distances", torch.empty(math.prod(window), math.prod(window), len(window)))
        self.hidden = nn.Linear(len(window), _BIAS_HIDDEN)
        self.head = nn.Linear(_BIAS_HIDDEN, heads, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the distances, by axis; the modules within have had their turn."""
        places = (grid_points(self.window) * torch.tensor(self.window)).flatten(0, -2)
        steps = places[None] - places[:, None]
        self.distances.copy_(steps.sign() * (1 + steps.abs()).log2())

    def forward(self) -> Tensor:
        """Return the bias (H, W, W)."""
        bias: Tensor = self.head(functional.relu(self.hidden(self.distances)))
        return bias.permute(2, 0, 1)


class CrossAttention(nn.Module):
    """Attention of queries to other tokens, with queries and keys normalised per head."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.norm_q = HeadNorm(dim // heads)
        self.norm_k = HeadNorm(dim // heads)
        self.out = nn.Linear(dim, dim)

    def forward(self, x: Tensor, tokens: Tensor) -> Tensor:
        """Map x (B, Q, D) and tokens (B, S, D) to (B, Q, D)."""
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(tokens).unflatten(-1, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(self.norm_q(q), self.norm_k(k), v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class HeadNorm(nn.RMSNorm):
    """RMSNorm in the type of its input, (..., E): with another type of weight it has no fast kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


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
