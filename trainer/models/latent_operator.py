"""The latent operator: a field is cut into patches, moved by a core, and put together again.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, C conditions, Q points
that are asked for, N axes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from trainer.contract.config import ModelConfig
from trainer.models.codec import DECODERS, PatchEncoder
from trainer.models.cores import CORES
from trainer.models.operator import Domain, Network, NetworkOperator, interpolated


class LatentNetwork(Network):
    """Encoder, core and decoder, learned together. The conditions, time among them, modulate each block.

    Each task has its own ends, and its own way to say its conditions; the core is shared.
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
        self.core = CORES[config.core](config, self.encoders[0].tokens)
        self.norm = nn.LayerNorm(config.dim)
        self.decoders = nn.ModuleList(DECODERS[config.decoder](config, domain) for domain in domains)

    @property
    def blocks(self) -> nn.ModuleList:
        """The core's."""
        return self.core.blocks

    @property
    def codec(self) -> list[nn.Module]:
        """Of all tasks."""
        return [*self.encoders, *self.decoders]

    def predict_change(
        self,
        fields: Tensor,
        conditions: Tensor,
        task: int,
        points: Tensor | None = None,
        latents: Tensor | None = None,
    ) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X), or to (B, K, Q) at points (Q, N).

        Latents (B, S, D): what the encoder makes of the fields, where that is known.
        """
        tokens = self.encoders[task](fields) if latents is None else latents
        moved = self.core(tokens, self.condition_encoders[task](conditions))
        change: Tensor = self.decoders[task](self.norm(moved), points)
        return change


class LatentOperator(LatentNetwork, NetworkOperator):
    """What the parts make of a field is the change of it."""

    def forward(
        self,
        u: Tensor,
        conditions: Tensor,
        task: int = 0,
        points: Tensor | None = None,
        latents: Tensor | None = None,
    ) -> Tensor:
        """Map u (B, K, *X) and conditions (B, C) of a task, by number, to what is asked for, shaped like u.

        With points (Q, N) of the unit domain: to its values there (B, K, Q). Latents: as of `predict_change`.
        """
        scale = self.scale(task)
        change = self.predict_change(scale.into(u), conditions, task, points, latents)
        return scale.out(change, u if points is None else interpolated(u, points))
