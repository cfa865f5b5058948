"""What the stages after the operator make small: the error of a denoiser, and its disagreement with itself.

Shapes: B windows, U frames predicted, K channels, X points by axis, C conditions.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.distributed.shards import local
from vastrun.trainer.models.latent_operator import LatentNetwork
from vastrun.trainer.models.operator import Network
from vastrun.trainer.stages.diffusion import heun_step, ladder_at, level_of, weight_of
from vastrun.trainer.stages.objective import Objective
from vastrun.trainer.stages.sampled import DistilledOperator, RefinedOperator, SampledOperator

_LEVELS = 18
"""Of distillation, as of Song et al. 2023: neighbours among these are made to agree."""
_FOLLOWS = 0.05
"""Share of the learner that goes into its average with each step."""
_SMALLEST = 1e-6


@dataclass(frozen=True, kw_only=True)
class Examples:
    """Clean fields in units of their own deviation, each with what the denoiser is told of it."""

    clean: Tensor
    """(U * B, K, *X)"""
    noise: Tensor
    """(U * B, K, *X): standard normal; that of a window serves all its frames."""
    normal: Tensor
    """(U * B,): what their levels of noise follow from."""
    given: Tensor
    """(U * B, G * K, *X)"""
    conditions: Tensor
    """(U * B, C)"""


@torch.no_grad()
def examples(model: SampledOperator, windows: Windows) -> Examples:
    """Return the frames of the windows, as the operator comes to them.

    The first is given, each later one follows from what it predicted, as in a rollout.
    """
    u, frames = windows.fields[:, 0], []
    for target in windows.fields[:, 1:].unbind(1):
        frame = model.frame(u, windows.conditions, windows.task)
        frames.append(((target - frame.centre) / frame.unit, frame.given))
        # Its own answer, not the truth: a rollout has no other.
        u = frame.centre
    clean, given = (torch.cat(each) for each in zip(*frames, strict=True))
    again = partial(_again, times=len(frames))
    return Examples(
        clean=clean,
        given=given,
        noise=again(windows.noise),
        normal=again(windows.level),
        conditions=again(windows.conditions),
    )


class DenoisingLoss(Objective):
    """The error of the denoiser at random levels of noise (Karras et al. 2022)."""

    def __init__(self, operator: SampledOperator) -> None:
        super().__init__()
        self.operator: SampledOperator = operator

    @property
    def learner(self) -> Network:
        return self.operator.denoiser

    def begin(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:  # noqa: ARG002
        """Begin the denoiser with what the operator answers, which is its own answer where noise is high."""
        initialise_from(self.operator.denoiser, self.operator.operator, answers=True)

    def forward(self, windows: Windows) -> Tensor:
        """Return the loss (1,)."""
        of = examples(self.operator, windows)
        level = level_of(of.normal)
        noisy = of.clean + _wide(level, of.clean) * of.noise
        clean = self.learner(noisy, level, of.given, of.conditions, windows.task)
        return (_wide(weight_of(level), clean) * (clean - of.clean).square()).mean()[None]


class RefiningLoss(DenoisingLoss):
    """Of what the operator leaves."""

    def __init__(self, operator: RefinedOperator) -> None:
        super().__init__(operator)

    def begin(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:
        """Make the deviation of what the operator leaves the unit of what is drawn.

        The denoiser begins with what the operator sees, and answers nothing yet.
        """
        initialise_from(self.operator.denoiser, self.operator.operator, answers=False)
        for task, windows in enumerate(batches):
            own, theirs = (each.scale(task) for each in (self.operator.denoiser, self.operator.operator))
            own.mean.copy_(torch.stack([theirs.mean[0], torch.zeros_like(theirs.mean[1])]))
            own.std.copy_(theirs.std)
            deviation = self._deviation(windows, ranks, channels=len(own.std[1]))
            own.std[1] *= deviation.to(own.std).reshape(own.std[1].shape)

    def _deviation(self, batches: Iterable[Windows], ranks: Ranks, *, channels: int) -> Tensor:
        """Return the deviation (K,) of clean fields in their present units, over all ranks; float64."""
        sums = torch.zeros(2, channels, dtype=torch.float64)
        for windows in batches:
            squares = examples(self.operator, windows).clean.double().square().transpose(0, 1).flatten(1)
            sums += torch.stack([squares.sum(dim=1), torch.full_like(squares[:, 0], squares.shape[1])]).cpu()
        total, count = ranks.all_reduce_sum(sums)
        return (total / count).sqrt().clamp_min(_SMALLEST)


class ConsistencyLoss(Objective):
    """How far the learner's answer at one level of noise is from its average's answer at the next lower one,
    where the teacher leads to (Song et al. 2023)."""

    def __init__(self, operator: DistilledOperator) -> None:
        super().__init__()
        self.operator: DistilledOperator = operator

    @property
    def learner(self) -> Network:
        return self.operator.denoiser

    def begin(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:  # noqa: ARG002
        """Begin learner and average as the refiner that they follow."""
        for network in (self.operator.denoiser, self.operator.average):
            ema_update(network, self.operator.teacher, 1.0)

    def follow(self) -> None:
        ema_update(self.operator.average, self.learner, _FOLLOWS)

    def forward(self, windows: Windows) -> Tensor:
        """Return the loss (1,)."""
        model, of = self.operator, examples(self.operator, windows)
        high, low = neighbours(of.normal)
        told = {"given": of.given, "conditions": of.conditions, "task": windows.task}
        noisy = of.clean + _wide(high, of.clean) * of.noise
        answer = self.learner(noisy, high, **told)
        with torch.no_grad():
            led = heun_step(partial(model.teacher, **told), noisy, high, low)
            aim = model.average(led, low, **told)
        return (answer - aim).square().mean()[None]


def neighbours(normal: Tensor) -> tuple[Tensor, Tensor]:
    """Draw two levels of noise (B,) next to each other, all pairs as likely, from standard normal numbers."""
    place = (torch.special.ndtr(normal) * (_LEVELS - 1)).long().clamp_max(_LEVELS - 2)
    return ladder_at(place, _LEVELS), ladder_at(place + 1, _LEVELS)


def _wide(values: Tensor, like: Tensor) -> Tensor:
    """Reshape (B,) to (B, 1, *1)."""
    return values.reshape(-1, *(1,) * (like.ndim - 1))


def _again(tensor: Tensor, times: int) -> Tensor:
    """Repeat to (times * B, ...)."""
    return tensor.repeat(times, *(1,) * (tensor.ndim - 1))


@torch.no_grad()
def ema_update(network: Network, towards: Network, share: float) -> None:
    """Move all that `network` holds nearer to `towards`, by a share of the difference; 1 copies it."""
    torch._foreach_lerp_([*_held(network).values()], [*_held(towards).values()], share)


@torch.no_grad()
def initialise_from(network: LatentNetwork, of: LatentNetwork, *, answers: bool) -> None:
    """Begin `network` with what `of` knows of the fields and conditions that it is given first.

    What it is given besides means nothing yet. Without `answers` it says nothing at first.
    """
    ours = _held(network)
    for name, known in _held(of).items():
        part, task, *_ = name.split(".")
        if part in ("scales", "decoders") and not (answers and part == "decoders"):
            continue
        mine = ours[name]
        if mine.shape != known.shape:
            points = math.prod(of.encoders[int(task)].size) if part == "encoders" else 1
            # A wider layer: what is known fills the first inputs, the new ones count for nothing yet.
            mine.zero_()
            known = known.unflatten(1, (points, -1))
            mine = mine.unflatten(1, (points, -1))[:, :, : known.shape[2]]
        mine.copy_(known)


def _held(network: Network) -> dict[str, Tensor]:
    """Return this rank's part of all parameters and buffers, by name."""
    # Under FSDP2 this lets go of what lay gathered: the next forward pass gathers the new weights.
    held = network.state_dict()
    return dict(zip(held, local(held.values()), strict=True))
