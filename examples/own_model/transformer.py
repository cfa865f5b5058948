"""A transformer of plain torch as the model of the onboard trainer: `transformer:Transformer`."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Transformer(nn.Module):
    """Predicts the change of a field from one frame to the next. Each token is a patch of the field."""

    def __init__(
        self,
        *,
        grid: tuple[int, ...],
        channels: int,
        conditions: int,
        patch: int = 4,
        width: int = 64,
        depth: int = 4,
        heads: int = 4,
        dropout: float = 0.0,
    ) -> None:
        """`grid`, `channels` and `conditions` come from the data, the others from `model.options`."""
        super().__init__()
        if len(grid) > 2:
            raise ValueError(f"data.task: expected one with one or two axes, got the grid {grid}")
        if any(points % patch for points in grid):
            raise ValueError(f"patch: expected a divisor of the grid {grid}, got {patch}")
        self.patches = nn.Unfold(patch, stride=patch) if len(grid) == 2 else None
        self.grid, self.patch = grid, patch
        tokens, values = math.prod(points // patch for points in grid), channels * patch ** len(grid)
        self.encode = nn.Linear(values, width)
        self.place = nn.Parameter(torch.randn(tokens, width))
        self.condition = nn.Linear(conditions, width)
        # The trainer shards, checkpoints and compiles the modules of the largest list one by one.
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 2 * width, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.decode = nn.Linear(width, values)
        # An untrained model predicts no change.
        nn.init.zeros_(self.decode.weight)
        nn.init.zeros_(self.decode.bias)

    def forward(self, fields: Tensor, conditions: Tensor) -> Tensor:
        """Map fields (B, channels, *grid) and conditions (B, conditions) to a change (B, channels, *grid)."""
        x = self.encode(self._to_tokens(fields)) + self.place + self.condition(conditions)[:, None]
        for layer in self.layers:
            x = layer(x)
        return self._to_fields(self.decode(self.norm(x)))

    def _to_tokens(self, fields: Tensor) -> Tensor:
        """Cut fields (B, K, *X) into patches (B, tokens, values)."""
        if self.patches is not None:
            return self.patches(fields).transpose(1, 2)
        return fields.unflatten(2, (-1, self.patch)).movedim(2, 1).flatten(2)

    def _to_fields(self, tokens: Tensor) -> Tensor:
        """Join patches (B, tokens, values) to fields (B, K, *X)."""
        if self.patches is not None:
            return nn.functional.fold(tokens.transpose(1, 2), self.grid, self.patch, stride=self.patch)
        return tokens.unflatten(2, (-1, self.patch)).movedim(1, 2).flatten(2)
