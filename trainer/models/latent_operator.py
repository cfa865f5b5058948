"""The latent operator: a field is cut into patches, moved by a core, and put together again.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, C conditions.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from vastrun.contract.config import ModelConfig
from vastrun.trainer.models.attention import Block
from vastrun.trainer.models.codec import PatchDecoder, PatchEncoder
from vastrun.trainer.models.operator import Domain, Network, NetworkOperator


class TransformerStack(nn.Module):
    """A stack of blocks in which every token attends to all."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.depth))

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        """Map x (B, S, D) and condition (B, D) to (B, S, D)."""
        for block in self.blocks:
            x = block(x, condition)
        return x


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
        self.core = TransformerStack(config)
        self.norm = nn.LayerNorm(config.dim)
        self.decoders = nn.ModuleList(PatchDecoder(config, domain) for domain in domains)

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
        latents: Tensor | None = None,
    ) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X).

        Latents (B, S, D): what the encoder makes of the fields, where that is known.
        """
        tokens = self.encoders[task](fields) if latents is None else latents
        moved = self.core(tokens, self.condition_encoders[task](conditions))
        change: Tensor = self.decoders[task](self.norm(moved))
        return change


class LatentOperator(LatentNetwork, NetworkOperator):
    """What the parts make of a field is the change of it."""

    def forward(
        self,
        u: Tensor,
        conditions: Tensor,
        task: int = 0,
        latents: Tensor | None = None,
    ) -> Tensor:
        """Map u (B, K, *X) and conditions (B, C) of a task, by number, to what is asked for, shaped like u.

        Latents: as of `predict_change`.
        """
        scale = self.scale(task)
        change = self.predict_change(scale.into(u), conditions, task, latents)
        return scale.out(change, u)
