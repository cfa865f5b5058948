"""Fourier branch: Fourier layers over the points of a field, next to the tokens of the latent operator.

A steep front lies anywhere within a patch, and tokens are mapped to its points linearly. Fourier layers do
the same at every point, over the whole field, and are not linear.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, F channels of the branch.
"""

from __future__ import annotations

import math

from torch import Tensor, nn
from torch.nn import functional

from vastrun.contract.config import ModelConfig
from vastrun.trainer.models.codec import from_patches, patch_size
from vastrun.trainer.models.fno import FourierBlock
from vastrun.trainer.models.operator import Domain

_LAYERS = 4


class FourierBranch(nn.Module):
    """Change of a field from its points, the tokens of their patches and the conditions."""

    def __init__(self, config: ModelConfig, domain: Domain) -> None:
        super().__init__()
        width, hidden = config.fourier_dim, config.mlp_ratio * config.fourier_dim
        self.grid, self.size = domain.grid, patch_size(config, domain)
        self.points = nn.Linear(domain.inputs or domain.channels, width)
        self.tokens = nn.Linear(config.dim, width * math.prod(self.size))
        self.modulation = nn.Linear(config.dim, _LAYERS * 2 * width)
        self.layers = nn.ModuleList(FourierBlock(width, config.modes, domain.grid) for _ in range(_LAYERS))
        self.hidden = nn.Linear(width, hidden)
        self.head = nn.Linear(hidden, domain.channels)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set head and modulation to zero: the branch predicts no change at first."""
        for layer in (self.head, self.modulation):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, fields: Tensor, tokens: Tensor, condition: Tensor) -> Tensor:
        """Map fields (B, K, *X), tokens (B, S, D) and condition (B, D) to a change (B, K, *X)."""
        patches = self.tokens(tokens).unflatten(2, (math.prod(self.size), -1))
        x = self.points(fields.movedim(1, -1)) + from_patches(patches, self.grid, self.size)
        modulation = self.modulation(condition).reshape(len(fields), *(1,) * len(self.grid), -1)
        factors = modulation.chunk(2 * _LAYERS, dim=-1)
        for layer, scale, shift in zip(self.layers, factors[::2], factors[1::2], strict=True):
            x = layer(x * (1 + scale) + shift)
        change: Tensor = self.head(functional.gelu(self.hidden(x)))
        return change.movedim(-1, 1)
