"""Denoiser: a noisy field to the clean one, at any level of noise, from the parts of the latent operator.

Shapes: B samples, K channels that are drawn, G fields of K channels that are given, X points by axis,
C conditions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from vastrun.contract.config import ModelConfig
from vastrun.trainer.models.latent_operator import LatentNetwork
from vastrun.trainer.models.operator import Domain


class Denoiser(LatentNetwork):
    """The denoiser of Karras et al. 2022 (EDM), for fields of deviation 1: the network sees inputs of
    deviation 1 and has targets of deviation 1 at any level of noise.

    At the level `lowest` it returns its input, whatever its weights are: with 0 as the EDM does, with more as
    consistency models must (Song et al. 2023).

    Its scales are those of what it is given, and of what it draws.
    """

    def __init__(
        self, config: ModelConfig, domains: Sequence[Domain], *, given: int, lowest: float = 0.0
    ) -> None:
        super().__init__(config, [_noisy(domain, given) for domain in domains])
        self.gains = nn.ModuleList(Gain(config.dim, domain.channels) for domain in domains)
        self.lowest = lowest

    def forward(self, noisy: Tensor, level: Tensor, given: Tensor, conditions: Tensor, task: int) -> Tensor:
        """Map noisy fields (B, K, *X) to (B, K, *X), in units of their own deviation.

        The deviation of the noise is (B,), what is given (B, G * K, *X), the conditions are (B, C).
        """
        sigma = level.reshape(-1, *(1,) * (noisy.ndim - 1))
        above, spread = sigma - self.lowest, (sigma.square() + 1).sqrt()
        seen = torch.cat([given, noisy / spread], dim=1)
        told = torch.cat([conditions, level.log()[:, None] / 4], dim=1)
        gain = self.gains[task](self.condition_encoders[task](told))
        change = self.predict_change(seen, told, task)
        made = change + gain.reshape(*gain.shape, *sigma.shape[2:]) * noisy / spread
        return noisy / (above.square() + 1) + above / spread * made


class Gain(nn.Linear):
    """How much of the noisy field goes past the network, by channel: (B, D) to (B, K).

    Where what is given says all, the network need not carry noise through its tokens to take it away again.
    """

    def reset_parameters(self) -> None:
        """Set the gain to zero: it does nothing at first."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


def _noisy(domain: Domain, given: int) -> Domain:
    return replace(
        domain, inputs=(1 + given) * domain.channels, conditions=domain.conditions + 1, steady=True
    )
