"""Denoiser: maps a noisy field to the clean one at any noise level, built from the latent operator's parts.

Shapes: B samples, K channels of the denoised field, G context fields of K channels, X points by axis,
C conditions.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.latent_operator import LatentNetwork
from vastrun.trainer.models.operator import Domain


class Denoiser(LatentNetwork):
    """The denoiser of Karras et al. 2022 (EDM), for fields of deviation 1: the network sees inputs of
    deviation 1 and has targets of deviation 1 at any level of noise.

    At `min_level` it returns its input, whatever its weights are: 0 as in EDM, above 0 as consistency models
    require (Song et al. 2023).

    Its scales are those of the context fields and of the denoised field.
    """

    def __init__(
        self, config: ModelConfig, domains: Sequence[Domain], *, context: int, min_level: float = 0.0
    ) -> None:
        noisy = [
            replace(each, inputs=(1 + context) * each.channels, conditions=each.conditions + 1, steady=True)
            for each in domains
        ]
        super().__init__(config, noisy)
        self.gains = nn.ModuleList(Gain(config.dim, domain.channels) for domain in domains)
        self.min_level = min_level

    def forward(self, noisy: Tensor, level: Tensor, context: Tensor, conditions: Tensor, task: int) -> Tensor:
        """Map noisy fields (B, K, *X) to (B, K, *X), in units of their own deviation.

        `level` (B,) is the deviation of the noise; context is (B, G * K, *X), conditions are (B, C).
        """
        sigma = level.reshape(-1, *(1,) * (noisy.ndim - 1))
        over_min, spread = sigma - self.min_level, (sigma.square() + 1).sqrt()
        inputs = torch.cat([context, noisy / spread], dim=1)
        condition_inputs = torch.cat([conditions, level.log()[:, None] / 4], dim=1)
        gain = self.gains[task](self.condition_encoders[task](condition_inputs))
        change = self.predict_change(inputs, condition_inputs, task)
        output = change + gain.reshape(*gain.shape, *sigma.shape[2:]) * noisy / spread
        return noisy / (over_min.square() + 1) + over_min / spread * output


class Gain(nn.Linear):
    """Skip connection for the noisy field, a factor per channel: (B, D) to (B, K).

    Where the context determines the answer, the network need not carry noise through its tokens only to
    remove it again.
    """

    def reset_parameters(self) -> None:
        """Set the gain to zero: it does nothing at first."""
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)
