"""Losses of the stages after the operator: denoising, refining and consistency.

Shapes: B windows, U frames predicted, K channels, X points by axis, C conditions.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks, local
from vastrun.trainer.models.latent_operator import LatentNetwork
from vastrun.trainer.models.operator import Network
from vastrun.trainer.stages import sampled
from vastrun.trainer.stages.objective import Objective

_NOISE_LEVELS = 18
"""Number of noise levels in distillation (Song et al. 2023); answers at adjacent levels are made to agree."""
_EMA_SHARE = 0.05
"""Weight of the learner in its moving average, per step."""


@dataclass(frozen=True, kw_only=True)
class DenoisingExamples:
    """Clean fields in units of their own deviation, each with the inputs of the denoiser."""

    clean: Tensor
    """(U * B, K, *X)"""
    noise: Tensor
    """(U * B, K, *X): standard normal; all frames of a window share it."""
    normal: Tensor
    """(U * B,): standard normal numbers that the noise levels are computed from."""
    context: Tensor
    """(U * B, G * K, *X)"""
    conditions: Tensor
    """(U * B, C)"""


@torch.no_grad()
def denoising_examples(model: sampled.SampledOperator, windows: Windows) -> DenoisingExamples:
    """Return the frames of the windows as the operator meets them in a rollout.

    The first frame is given, each later one follows from the operator's own prediction.
    """
    u, frames = windows.fields[:, 0], []
    for target in windows.fields[:, 1:].unbind(1):
        frame = model.frame(u, windows.conditions, windows.task)
        frames.append(((target - frame.centre) / frame.unit, frame.context))
        # The operator's own prediction, not the truth: as in a rollout.
        u = frame.centre
    clean, context = (torch.cat(each) for each in zip(*frames, strict=True))
    again = partial(_repeat, times=len(frames))
    return DenoisingExamples(
        clean=clean,
        context=context,
        noise=again(windows.noise),
        normal=again(windows.level),
        conditions=again(windows.conditions),
    )


class DenoisingLoss(Objective):
    """Error of the denoiser at random noise levels (Karras et al. 2022)."""

    def __init__(self, operator: sampled.SampledOperator) -> None:
        super().__init__()
        self.operator: sampled.SampledOperator = operator

    @property
    def learner(self) -> Network:
        return self.operator.denoiser

    def initialise(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:  # noqa: ARG002
        """Initialise the denoiser from the operator, whose answer is the right one at high noise."""
        initialise_from(self.operator.denoiser, self.operator.operator, decoders=True)

    def forward(self, windows: Windows) -> Tensor:
        """Return the loss (1,)."""
        examples = denoising_examples(self.operator, windows)
        level = sampled.training_level(examples.normal)
        noisy = examples.clean + _as_column(level, examples.clean) * examples.noise
        clean = self.learner(noisy, level, examples.context, examples.conditions, windows.task)
        errors = _as_column(sampled.loss_weight(level), clean) * (clean - examples.clean).square()
        return errors.mean()[None]


class RefiningLoss(DenoisingLoss):
    """Denoising loss on the operator's residual: target minus prediction."""

    def __init__(self, operator: sampled.RefinedOperator) -> None:
        super().__init__(operator)

    def initialise(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:
        """Set the unit of the residual to its deviation, and initialise the denoiser.

        It gets the operator's encoders but not its decoders: it predicts nothing at first.
        """
        initialise_from(self.operator.denoiser, self.operator.operator, decoders=False)
        for task, windows in enumerate(batches):
            own, operator_scale = (
                each.scale(task) for each in (self.operator.denoiser, self.operator.operator)
            )
            own.mean.copy_(torch.stack([operator_scale.mean[0], torch.zeros_like(operator_scale.mean[1])]))
            own.std.copy_(operator_scale.std)
            deviation = self._deviation(windows, ranks, channels=len(own.std[1]))
            own.std[1] *= deviation.to(own.std).reshape(own.std[1].shape)

    def _deviation(self, batches: Iterable[Windows], ranks: Ranks, *, channels: int) -> Tensor:
        """Return the deviation (K,) of clean fields in their current units, over all ranks; float64."""
        sums = torch.zeros(2, channels, dtype=torch.float64)
        for windows in batches:
            squares = (
                denoising_examples(self.operator, windows).clean.double().square().transpose(0, 1).flatten(1)
            )
            sums += torch.stack([squares.sum(dim=1), torch.full_like(squares[:, 0], squares.shape[1])]).cpu()
        total, count = ranks.all_reduce_sum(sums)
        return (total / count).sqrt().clamp_min(1e-6)


class ConsistencyLoss(Objective):
    """Distance between the learner's answer at one noise level and its average's answer at the next lower
    one, which one step of the teacher leads to (Song et al. 2023)."""

    def __init__(self, operator: sampled.DistilledOperator) -> None:
        super().__init__()
        self.operator: sampled.DistilledOperator = operator

    @property
    def learner(self) -> Network:
        return self.operator.denoiser

    def initialise(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:  # noqa: ARG002
        """Initialise learner and average from the teacher."""
        for network in (self.operator.denoiser, self.operator.average):
            ema_update(network, self.operator.teacher, 1.0)

    def update_average(self) -> None:
        ema_update(self.operator.average, self.learner, _EMA_SHARE)

    def forward(self, windows: Windows) -> Tensor:
        """Return the loss (1,)."""
        model, examples = self.operator, denoising_examples(self.operator, windows)
        high, low = adjacent_levels(examples.normal)
        inputs = {"context": examples.context, "conditions": examples.conditions, "task": windows.task}
        noisy = examples.clean + _as_column(high, examples.clean) * examples.noise
        answer = self.learner(noisy, high, **inputs)
        with torch.no_grad():
            x_low = sampled.heun_step(partial(model.teacher, **inputs), noisy, high, low)
            aim = model.average(x_low, low, **inputs)
        return (answer - aim).square().mean()[None]


def adjacent_levels(normal: Tensor) -> tuple[Tensor, Tensor]:
    """Return two adjacent noise levels (B,), all pairs equally likely, from standard normal numbers."""
    place = (torch.special.ndtr(normal) * (_NOISE_LEVELS - 1)).long().clamp_max(_NOISE_LEVELS - 2)
    return sampled.noise_level_at(place, _NOISE_LEVELS), sampled.noise_level_at(place + 1, _NOISE_LEVELS)


def _as_column(values: Tensor, like: Tensor) -> Tensor:
    """Reshape (B,) to (B, 1, *1)."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


def _repeat(tensor: Tensor, times: int) -> Tensor:
    """Repeat to (times * B, ...)."""
    return tensor.repeat(times, *(1,) * (tensor.ndim - 1))


@torch.no_grad()
def ema_update(network: Network, towards: Network, share: float) -> None:
    """Move parameters and buffers of `network` towards another's by a share of the difference; 1 copies."""
    torch._foreach_lerp_([*_local_state(network).values()], [*_local_state(towards).values()], share)


@torch.no_grad()
def initialise_from(network: LatentNetwork, source: LatentNetwork, *, decoders: bool) -> None:
    """Copy the weights of `source` to `network`, whose inputs start with the same fields and conditions.

    The weights of its further inputs become zero. Without `decoders` its own zero decoders stay.
    """
    network_state = _local_state(network)
    for name, known in _local_state(source).items():
        part, task, *_ = name.split(".")
        if part in ("scales", "decoders") and not (decoders and part == "decoders"):
            continue
        mine = network_state[name]
        if mine.shape != known.shape:
            points = math.prod(source.encoders[int(task)].size) if part == "encoders" else 1
            # A wider layer: the known weights fill the first inputs, the new ones are zero.
            mine.zero_()
            known = known.unflatten(1, (points, -1))
            mine = mine.unflatten(1, (points, -1))[:, :, : known.shape[2]]
        mine.copy_(known)


def _local_state(network: Network) -> dict[str, Tensor]:
    """Return this rank's shards of all parameters and buffers, by name."""
    # Under FSDP2 this reshards the gathered weights: the next forward pass gathers the new ones.
    held = network.state_dict()
    return dict(zip(held, local(held.values()), strict=True))
