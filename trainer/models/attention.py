"""Attention, and the transformer block around it.

Shapes: B samples, S tokens, D channels, H heads, E = D / H channels of a head.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from vastrun.contract.config import ModelConfig


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
