"""Sampled operators: answers are drawn by a denoiser, with a frozen operator's prediction as context.

Shapes: B samples, K channels, X points by axis, C conditions, S draws, N steps that need fresh noise.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from vastrun.trainer import models
from vastrun.trainer.job.config import TrainConfig
from vastrun.trainer.models.denoiser import Denoiser
from vastrun.trainer.models.operator import Domain, Operator, Scale

_MIN_SIZE = 1e-3
"""Smallest unit of the residual, in deviations of the data."""
_FIELD_SHARE = 0.1
"""Weight of a field's size relative to the size of its change."""
MIN_LEVEL, MAX_LEVEL = 0.1, 20.0
_RHO = 7.0
_LOG_MEAN, _LOG_DEVIATION = 0.4, 1.4

Denoise = Callable[[Tensor, Tensor], Tensor]
"""Maps a noisy field (B, K, *X) and its noise levels (B,) to the clean field."""


@dataclass(frozen=True, kw_only=True)
class AffineFrame:
    """Affine map from a sample of deviation 1 to a field: `centre + unit * sample`."""

    centre: Tensor
    """(B, K, *X)"""
    unit: Tensor
    """(B, K, *1) or (K, *1)"""
    context: Tensor
    """(B, G * K, *X): context fields of the denoiser, in the model's units."""


class SampledOperator(Operator):
    """Operator that returns the mean of a few draws. The noise of each draw is fixed, the same for all
    fields, so that the answer is a function of the input."""

    context_fields: int
    """Number of context fields of the denoiser."""
    default_steps: int
    default_temperature: float

    def __init__(self, config: TrainConfig, domains: Sequence[Domain], *, fresh: int = 1) -> None:
        super().__init__()
        self.domains = tuple(domains)
        self.steps = config.sampler.steps or self.default_steps
        temperature = config.sampler.temperature
        self.temperature = self.default_temperature if temperature is None else temperature
        self.operator = models.make(config.model, domains).requires_grad_(False)
        self.denoiser = Denoiser(config.model, domains, context=self.context_fields)
        self.noise = nn.ModuleList(DrawNoise(domain, config.sampler.draws, fresh) for domain in domains)

    @abstractmethod
    def frame(self, u: Tensor, conditions: Tensor, task: int) -> AffineFrame:
        """Return the affine frame of u (B, K, *X) and conditions (B, C) of a task, by number."""

    def scale(self, task: int) -> Scale:
        """Return the scale of a task."""
        return self.operator.scale(task)

    @property
    def calls(self) -> int:
        """Network calls per answer."""
        return self.steps * len(self.noise[0].fixed)

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        return self.draws(u, conditions, task).mean(dim=0)

    def draws(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        """Map u (B, K, *X) and conditions (B, C) of a task, by number, to several answers (S, B, K, *X)."""
        frame = self.frame(u, conditions, task)
        noise: Tensor = self.temperature * self.noise[task].fixed
        count = len(noise)
        context, condition_inputs = (  # (count * B, ...)
            each.expand(count, *each.shape).flatten(0, 1) for each in (frame.context, conditions)
        )
        begin = noise.transpose(0, 1)[:, :, None].expand(-1, -1, len(u), *noise.shape[2:]).flatten(1, 2)
        drawn = self._sample(lambda x, level: self._denoise(x, level, context, condition_inputs, task), begin)
        return frame.centre + frame.unit * drawn.unflatten(0, (count, -1))

    def _sample(self, denoise: Denoise, noise: Tensor) -> Tensor:
        """Draw answers (S * B, K, *X) from noise (N, S * B, K, *X)."""
        return euler_sample(denoise, noise[0], self.steps)

    def _denoise(self, x: Tensor, level: Tensor, context: Tensor, conditions: Tensor, task: int) -> Tensor:
        denoised: Tensor = self.denoiser(x, level, context, conditions, task)
        return denoised


class RefinedOperator(SampledOperator):
    """Operator whose prediction is corrected by a draw of its residual: target minus prediction.

    The unit of the residual is its deviation times the size of the predicted change plus a tenth of the
    field's size: an operator errs most where most changes, and a rollout starts from an earlier error.
    """

    context_fields = 2
    default_steps = 3
    default_temperature = 0.0

    @property
    def calls(self) -> int:
        return 1 + super().calls

    def frame(self, u: Tensor, conditions: Tensor, task: int) -> AffineFrame:
        own = self.denoiser.scale(task)
        prediction = self.operator(u, conditions, task)
        scale = self.operator.scale(task)
        change = scale.normalised_change(prediction, u)
        size = (_rms(change) + _FIELD_SHARE * _rms(prediction / scale.std[1])).clamp_min(_MIN_SIZE)
        context = torch.cat([own.normalise(u), change / size], dim=1)
        return AffineFrame(centre=prediction, unit=own.std[1] * size, context=context)


class DistilledOperator(RefinedOperator):
    """Refined operator that samples in one or two network calls, distilled from the refiner's many. The
    learner's moving average is used."""

    default_steps = 1

    def __init__(self, config: TrainConfig, domains: Sequence[Domain]) -> None:
        super().__init__(config, domains, fresh=config.sampler.steps or self.default_steps)
        self.teacher = self.denoiser.requires_grad_(False)
        self.denoiser, self.average = (
            Denoiser(config.model, domains, context=self.context_fields, min_level=MIN_LEVEL)
            for _ in range(2)
        )
        self.average.requires_grad_(False)

    def _sample(self, denoise: Denoise, noise: Tensor) -> Tensor:
        return consistency_sample(denoise, noise)

    def _denoise(self, x: Tensor, level: Tensor, context: Tensor, conditions: Tensor, task: int) -> Tensor:
        denoised: Tensor = self.average(x, level, context, conditions, task)
        return denoised


class SteadyPrior(SampledOperator):
    """Diffusion model of the solutions of a steady problem, given its coefficient alone. The operator serves
    for comparison only."""

    context_fields = 1
    default_steps = 3
    default_temperature = 1.0

    def frame(self, u: Tensor, conditions: Tensor, task: int) -> AffineFrame:  # noqa: ARG002 - for the denoiser only
        scale = self.denoiser.scale(task)
        return AffineFrame(centre=scale.mean[1].expand_as(u), unit=scale.std[1], context=scale.normalise(u))


class DrawNoise(nn.Module):
    """Fixed noise of the draws of a task. Not in a checkpoint: it follows from a constant seed."""

    fixed: Tensor

    def __init__(self, domain: Domain, draws: int, fresh: int) -> None:
        super().__init__()
        shape = (draws, fresh, domain.channels, *domain.grid)
        self.register_buffer("fixed", torch.empty(shape), persistent=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw standard normal noise (S, N, K, *X)."""
        stream = torch.Generator().manual_seed(0)
        self.fixed.copy_(torch.randn(self.fixed.shape, generator=stream, device="cpu"))


def _rms(fields: Tensor) -> Tensor:
    """Return the root mean square of each sample of (B, K, *X): (B, 1, *1)."""
    return fields.square().mean(dim=tuple(range(1, fields.ndim)), keepdim=True).sqrt()


def training_level(normal: Tensor) -> Tensor:
    """Return log-normal training levels, from standard normal numbers.

    Higher than for images: the dependence on the context fields is learned where noise hides all else.
    """
    return (_LOG_MEAN + _LOG_DEVIATION * normal).exp()


def loss_weight(level: Tensor) -> Tensor:
    """Return weights of squared errors with which the network's own target counts equally at all levels."""
    return (level.square() + 1) / level.square()


def noise_levels(steps: int) -> list[float]:
    """Return `steps` levels from the highest to the lowest, denser where the noise is low."""
    ends = MAX_LEVEL ** (1 / _RHO), MIN_LEVEL ** (1 / _RHO)
    return [(ends[0] + place / max(steps - 1, 1) * (ends[1] - ends[0])) ** _RHO for place in range(steps)]


def noise_level_at(place: Tensor, steps: int) -> Tensor:
    """Return the levels at these places of `noise_levels(steps)`, on the device of `place`: (B,) to (B,).

    Not by indexing a tensor of all levels: to copy that to a GPU, the host would wait for the device.
    """
    high, low = MAX_LEVEL ** (1 / _RHO), MIN_LEVEL ** (1 / _RHO)
    return (high + place.double() / max(steps - 1, 1) * (low - high)).pow(_RHO).float()


def euler_sample(denoise: Denoise, noise: Tensor, steps: int) -> Tensor:
    """Sample a field (B, K, *X) from standard normal noise along the probability flow, in `steps` calls.

    Euler's method: with a few long steps Heun's method is worse, because it evaluates the denoiser where a
    long step has led astray.
    """
    levels = [*noise_levels(steps), 0.0]
    x = levels[0] * noise
    for high, low in pairwise(levels):
        clean = denoise(x, x.new_full((len(x),), high))
        x = clean + low / high * (x - clean)
    return x


def heun_step(denoise: Denoise, x: Tensor, high: Tensor, low: Tensor) -> Tensor:
    """Move x (B, K, *X) along the probability flow from levels `high` (B,) to levels `low` (B,)."""
    above, below = (level.reshape(-1, *(1,) * (x.ndim - 1)) for level in (high, low))
    slope = (x - denoise(x, high)) / above
    there = x + (below - above) * slope
    return x + (below - above) * (slope + (there - denoise(there, low)) / below) / 2


def consistency_sample(denoise: Denoise, noise: Tensor) -> Tensor:
    """Sample a field (B, K, *X) from standard normal noise (N, B, K, *X), with one model call per step.

    Each step after the first starts from the previous result with fresh noise added.
    """
    levels = [MAX_LEVEL, 1.0][: len(noise)]
    x = torch.zeros_like(noise[0])
    for level, fresh in zip(levels, noise, strict=True):
        x = denoise(x + (level**2 - MIN_LEVEL**2) ** 0.5 * fresh, x.new_full((len(x),), level))
    return x
