"""Latent operator: encodes patches of a field as tokens, processes them, and decodes the next field.

Shapes: B samples, K channels, X points by axis, S tokens, D channels of a token, C conditions.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from vastrun.contract.config import ModelConfig
from vastrun.trainer.models.attention import Block
from vastrun.trainer.models.codec import PatchDecoder, PatchEncoder
from vastrun.trainer.models.fourier_branch import FourierBranch
from vastrun.trainer.models.operator import Domain, Network, NetworkOperator


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

    Each task has its own encoder, decoder, condition encoder and Fourier branch; the core is shared.
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
        self.branches = nn.ModuleList(
            FourierBranch(config, domain) for domain in domains if config.fourier_dim
        )

    @property
    def blocks(self) -> nn.ModuleList:
        """Blocks of the core."""
        return self.core.blocks

    @property
    def codec(self) -> list[nn.Module]:
        """Encoders and decoders of all tasks."""
        return [*self.encoders, *self.decoders]

    def predict_change(
        self,
        fields: Tensor,
        conditions: Tensor,
        task: int,
        latents: Tensor | None = None,
    ) -> Tensor:
        """Map fields (B, K, *X) and conditions (B, C) to (B, K, *X).

        `latents` (B, S, D): cached tokens of the fields; None: the encoder computes them.
        """
        tokens = self.encoders[task](fields) if latents is None else latents
        condition = self.condition_encoders[task](conditions)
        moved = self.norm(self.core(tokens, condition))
        change: Tensor = self.decoders[task](moved)
        return change + self.branches[task](fields, moved, condition) if self.branches else change


class LatentOperator(LatentNetwork, NetworkOperator):
    """Latent network that predicts the change of a field."""

    def forward(
        self,
        u: Tensor,
        conditions: Tensor,
        task: int = 0,
        latents: Tensor | None = None,
    ) -> Tensor:
        """Map u (B, K, *X) and conditions (B, C) of a task, by number, to the target field, shaped like u.

        `latents`: see `predict_change`.
        """
        scale = self.scale(task)
        change = self.predict_change(scale.normalise(u), conditions, task, latents)
        return scale.denormalise(change, u)
