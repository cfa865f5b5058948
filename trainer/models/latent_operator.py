"""The latent operator: a field is cut into patches, moved by a transformer, and put together again.

Shapes: B samples, X points, P points a patch, S = X / P tokens, D channels, H heads, C conditions.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainer.config import ModelConfig

_FREQUENCIES = 4


class LatentOperator(nn.Module):
    """One time step of a 1-D field on a periodic domain, in physical units.

    Freshly made it changes nothing: it predicts persistence.
    """

    def __init__(self, config: ModelConfig, *, points: int, conditions: int) -> None:
        super().__init__()
        tokens = points // config.patch
        self.patch = config.patch
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))
        self.register_buffer("position", torch.empty(tokens, 2 * _FREQUENCIES))
        self.encoder = nn.Linear(config.patch, config.dim)
        self.position_encoder = nn.Linear(2 * _FREQUENCIES, config.dim, bias=False)
        self.condition_encoder = nn.Sequential(
            nn.Linear(conditions, config.dim), nn.SiLU(), nn.Linear(config.dim, config.dim), nn.SiLU()
        )
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.dim)
        self.decoder = nn.Linear(config.dim, config.patch)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As freshly made; the modules within have had their turn."""
        nn.init.zeros_(self.mean)
        nn.init.ones_(self.std)
        self.position.copy_(_position_code(len(self.position)))
        nn.init.zeros_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)

    def normalise_by(self, mean: float, std: float) -> None:
        """Takes the mean and the standard deviation of the data; both are part of the model's state."""
        self.mean.fill_(mean)
        self.std.fill_(std)

    def forward(self, u: Tensor, conditions: Tensor) -> Tensor:
        """u (B, X) and conditions (B, C) to the next frame (B, X)."""
        patches = ((u - self.mean) / self.std).unflatten(1, (-1, self.patch))
        tokens = self.encoder(patches) + self.position_encoder(self.position)
        condition = self.condition_encoder(conditions)
        for block in self.blocks:
            tokens = block(tokens, condition)
        change: Tensor = self.decoder(self.norm(tokens)).flatten(1)
        return u + self.std * change


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
        """Changes nothing at first: the modulation is zero."""
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """x (B, S, D) and condition (B, D) to (B, S, D)."""
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
        """(B, S, D) to (B, S, D)."""
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(self.norm_q(q), self.norm_k(k), v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class HeadNorm(nn.RMSNorm):
    """RMSNorm in the type of its input: with another type of weight it has no fast kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)


def _position_code(tokens: int) -> Tensor:
    """(S, 2 * frequencies): sines and cosines of the patch centres on the unit circle."""
    centres = (torch.arange(tokens) + 0.5) / tokens
    angles = 2 * math.pi * centres[:, None] * torch.arange(1, _FREQUENCIES + 1)
    return torch.cat([angles.sin(), angles.cos()], dim=1)
