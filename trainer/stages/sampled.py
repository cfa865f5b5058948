"""Sampled: operators whose answers are drawn by a denoiser, from what an operator that does not learn says.

Shapes: B samples, K channels, X points by axis, C conditions, S draws, N steps that need fresh noise.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from vastrun.contract.config import TrainConfig
from vastrun.trainer import models
from vastrun.trainer.models.denoiser import Denoiser
from vastrun.trainer.models.operator import Domain, Operator, Scale
from vastrun.trainer.stages.diffusion import LOWEST, Denoise, consistent, euler

_SMALLEST = 1e-3
"""Size of a field, in deviations of the data, below which its errors are no smaller in proportion."""
_SEED = 0
_DRIFT = 0.1
"""What a field counts beside its change."""


@dataclass(frozen=True, kw_only=True)
class AffineFrame:
    """How what is drawn, of deviation 1, lies among the fields: at `centre + unit * drawn`."""

    centre: Tensor
    """(B, K, *X)"""
    unit: Tensor
    """(B, K, *1) or (K, *1)"""
    given: Tensor
    """(B, G * K, *X): what the denoiser is told, in the model's units."""


class SampledOperator(Operator):
    """Answers with the mean of a few draws. Each begins from noise of its own, the same for all fields and at
    any time, so that the answer is a function of what is given."""

    given: int
    """Fields that the denoiser is told."""
    usual_steps: int
    usual_temperature: float

    def __init__(self, config: TrainConfig, domains: Sequence[Domain], *, fresh: int = 1) -> None:
        super().__init__()
        self.domains = tuple(domains)
        self.steps = config.sampler.steps or self.usual_steps
        temperature = config.sampler.temperature
        self.temperature = self.usual_temperature if temperature is None else temperature
        self.operator = models.make(config.model, domains).requires_grad_(False)
        self.denoiser = Denoiser(config.model, domains, given=self.given)
        self.noise = nn.ModuleList(DrawNoise(domain, config.sampler.draws, fresh) for domain in domains)

    @abstractmethod
    def frame(self, u: Tensor, conditions: Tensor, task: int) -> AffineFrame:
        """Return the frame of u (B, K, *X) and conditions (B, C) of a task, by number."""

    def scale(self, task: int) -> Scale:
        """Return the operator's scale of a task."""
        return self.operator.scale(task)

    @property
    def calls(self) -> int:
        """Of networks, for one answer."""
        return self.steps * len(self.noise[0].fixed)

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        return self.draws(u, conditions, task).mean(dim=0)

    def draws(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        """Map u (B, K, *X) and conditions (B, C) of a task, by number, to several answers (S, B, K, *X)."""
        frame = self.frame(u, conditions, task)
        noise: Tensor = self.temperature * self.noise[task].fixed
        count = len(noise)
        given, told = (  # (count * B, ...)
            each.expand(count, *each.shape).flatten(0, 1) for each in (frame.given, conditions)
        )
        begin = noise.transpose(0, 1)[:, :, None].expand(-1, -1, len(u), *noise.shape[2:]).flatten(1, 2)
        drawn = self._drawn(lambda x, level: self._denoise(x, level, given, told, task), begin)
        return frame.centre + frame.unit * drawn.unflatten(0, (count, -1))

    def _drawn(self, denoise: Denoise, noise: Tensor) -> Tensor:
        """Draw answers (S * B, K, *X) from noise (N, S * B, K, *X)."""
        return euler(denoise, noise[0], self.steps)

    def _denoise(self, x: Tensor, level: Tensor, given: Tensor, conditions: Tensor, task: int) -> Tensor:
        denoised: Tensor = self.denoiser(x, level, given, conditions, task)
        return denoised


class RefinedOperator(SampledOperator):
    """Adds to what the operator predicts a draw of what it leaves: target minus prediction.

    That is measured in units of its own deviation times the size of the predicted change and a tenth of the
    field's: an operator errs most where most happens, and a rollout has erred before.
    """

    given = 2
    usual_steps = 3
    usual_temperature = 0.0

    @property
    def calls(self) -> int:
        return 1 + super().calls

    def frame(self, u: Tensor, conditions: Tensor, task: int) -> AffineFrame:
        own = self.denoiser.scale(task)
        prediction = self.operator(u, conditions, task)
        scale = self.operator.scale(task)
        change = scale.change(prediction, u)
        size = (_size(change) + _DRIFT * _size(prediction / scale.std[1])).clamp_min(_SMALLEST)
        given = torch.cat([own.into(u), change / size], dim=1)
        return AffineFrame(centre=prediction, unit=own.std[1] * size, given=given)


class DistilledOperator(RefinedOperator):
    """A refined operator that draws in one call of a network, or two: the refiner taught it to go in one step
    where it goes in many itself. The learner's average answers."""

    usual_steps = 1

    def __init__(self, config: TrainConfig, domains: Sequence[Domain]) -> None:
        super().__init__(config, domains, fresh=config.sampler.steps or self.usual_steps)
        self.teacher = self.denoiser.requires_grad_(False)
        self.denoiser, self.average = (
            Denoiser(config.model, domains, given=self.given, lowest=LOWEST) for _ in range(2)
        )
        self.average.requires_grad_(False)

    def _drawn(self, denoise: Denoise, noise: Tensor) -> Tensor:
        return consistent(denoise, noise)

    def _denoise(self, x: Tensor, level: Tensor, given: Tensor, conditions: Tensor, task: int) -> Tensor:
        denoised: Tensor = self.average(x, level, given, conditions, task)
        return denoised


class SteadyPrior(SampledOperator):
    """Draws solutions of a steady problem, given its coefficient alone. The operator is what it is compared
    with."""

    given = 1
    usual_steps = 3
    usual_temperature = 1.0

    def frame(self, u: Tensor, conditions: Tensor, task: int) -> AffineFrame:  # noqa: ARG002 - the denoiser is told
        scale = self.denoiser.scale(task)
        return AffineFrame(centre=scale.mean[1].expand_as(u), unit=scale.std[1], given=scale.into(u))


class DrawNoise(nn.Module):
    """What the draws of a task begin from. Not in a checkpoint: everybody draws the same."""

    fixed: Tensor

    def __init__(self, domain: Domain, draws: int, fresh: int) -> None:
        super().__init__()
        shape = (draws, fresh, domain.channels, *domain.grid)
        self.register_buffer("fixed", torch.empty(shape), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw standard normal noise (S, N, K, *X)."""
        stream = torch.Generator().manual_seed(_SEED)
        self.fixed.copy_(torch.randn(self.fixed.shape, generator=stream, device="cpu"))


def _size(fields: Tensor) -> Tensor:
    """Return the root mean square of each of (B, K, *X): (B, 1, *1)."""
    return fields.square().mean(dim=tuple(range(1, fields.ndim)), keepdim=True).sqrt()
