"""The latent operator: a field is cut into patches, moved by a core, and put together again.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, C conditions, Q points
that are asked for, N axes.
"""

from __future__ import annotations

from torch import Tensor, nn

from trainer.config import ModelConfig
from trainer.models.codec import DECODERS, PatchEncoder
from trainer.models.cores import CORES
from trainer.models.operator import Operator, interpolated


class LatentOperator(Operator):
    """Encoder, core and decoder, learned together. The conditions, time among them, modulate each block."""

    def __init__(
        self, config: ModelConfig, *, grid: tuple[int, ...], channels: int = 1, conditions: int
    ) -> None:
        super().__init__(grid, channels)
        self.encoder = PatchEncoder(config, grid, channels)
        self.condition_encoder = nn.Sequential(
            nn.Linear(conditions, config.dim), nn.SiLU(), nn.Linear(config.dim, config.dim), nn.SiLU()
        )
        self.core = CORES[config.core](config, self.encoder.tokens)
        self.norm = nn.LayerNorm(config.dim)
        self.decoder = DECODERS[config.decoder](config, grid, channels)

    @property
    def blocks(self) -> nn.ModuleList:
        """The core's."""
        return self.core.blocks

    def change(self, fields: Tensor, conditions: Tensor, points: Tensor | None = None) -> Tensor:
        """Fields (B, K, *X) and conditions (B, C) to (B, K, *X), or to (B, K, Q) at points (Q, N)."""
        tokens = self.core(self.encoder(fields), self.condition_encoder(conditions))
        change: Tensor = self.decoder(self.norm(tokens), points)
        return change

    def forward(self, u: Tensor, conditions: Tensor, points: Tensor | None = None) -> Tensor:
        """u (B, K, *X), or (B, *X) of one channel, and conditions (B, C) to the next frame, shaped like u.

        With points (Q, N) of the unit domain: to its values there (B, K, Q).
        """
        if points is None:
            return super().forward(u, conditions)
        fields = u.reshape(len(u), self.channels, *self.grid)
        change = self.change((fields - self.mean) / self.std, conditions, points)
        return interpolated(fields, points) + self.std.flatten(1) * change
