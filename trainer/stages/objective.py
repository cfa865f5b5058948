"""What training makes small: relative errors of a few predicted frames.

Shapes of the terms: fields (B, K, *X) in physical units; `unit` (K, *1) makes channels comparable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from vastrun.contract.config import ObjectiveConfig
from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.models.operator import Network, NetworkOperator, Operator

Term = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of a prediction, its target and the unit: (B,), zero when all is right."""

_QUIET = 1e-2
"""Share of a field's power. An octave that has less counts as if it had so much: near nothing, any error
would be large."""


class Objective(nn.Module, ABC):
    """What a stage makes small: (1,), or (1 + terms,) where the loss is made of several.

    A module, so that a wrapper sees one forward and one backward a micro-batch, whatever goes on within.
    """

    operator: Operator
    """All that answers: the network that learns, and those that it builds upon."""

    @property
    @abstractmethod
    def learner(self) -> Network:
        """The network that learns. Its first use in a forward pass must be one with a gradient."""

    @property
    def networks(self) -> list[Network]:
        """Those that learn and those that do not."""
        return [module for module in self.operator.modules() if isinstance(module, Network)]

    @abstractmethod
    def forward(self, windows: Windows) -> Tensor: ...

    def begin(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:
        """Prepare what does not learn; `batches` are a rank's first ones, by task. Without a gradient."""

    def follow(self) -> None:
        """Follow the learner, which was just updated."""


class UnrollLoss(Objective):
    """The mean relative error of the frames that the operator predicts one from the other, and what else the
    job wants small of them."""

    def __init__(self, operator: NetworkOperator, config: ObjectiveConfig | None = None) -> None:
        super().__init__()
        self.operator: NetworkOperator = operator
        self.weights = weights_of(config or ObjectiveConfig())

    @property
    def learner(self) -> Network:
        """There is one."""
        return self.operator

    def forward(self, windows: Windows) -> Tensor:
        """Return the loss (1,); with several terms (1 + terms,): each follows, without its weight."""
        scale = self.operator.scale(windows.task)
        u = windows.fields[:, 0] + scale.std[0] * windows.noise
        known = {} if windows.latents is None else {"latents": windows.latents}
        terms = []
        for target in windows.fields[:, 1:].unbind(1):
            u = self.operator(u, windows.conditions, windows.task, **known)
            known = {}  # tokens are kept of given frames only; a predicted one has to be encoded
            terms.append(self._terms(u, target, scale.std[1], steady=scale.steady))
        means = torch.stack(terms).mean(dim=0)
        if len(self.weights) == 1:
            return means
        loss = sum(weight * mean for weight, mean in zip(self.weights.values(), means, strict=True))
        # Without a gradient: the terms are told, their weighted sum is learnt from.
        return torch.stack([loss, *means.detach()])

    def _terms(self, prediction: Tensor, target: Tensor, unit: Tensor, *, steady: bool) -> Tensor:
        """Return the terms, means over the windows: (terms,)."""
        errors = [
            target.new_zeros(1) if steady and name in WITH_TIME else TERMS[name](prediction, target, unit)
            for name in self.weights
        ]
        return torch.stack([error.mean() for error in errors])


def weights_of(config: ObjectiveConfig) -> dict[str, float]:
    """Return the weights of the terms that are computed, by name."""
    return {name: weight for name, weight in {"relative": 1.0, **vars(config)}.items() if weight > 0}


def terms_of(config: ObjectiveConfig) -> tuple[str, ...]:
    """Return what the loss is told to be made of; nothing where it has one term."""
    names = tuple(f"loss_{name}" for name in weights_of(config))
    return names if len(names) > 1 else ()


def relative_error(prediction: Tensor, target: Tensor, unit: Tensor) -> Tensor:
    """Return the norm of the error over the norm of the target: (B,)."""
    error, size = (((field / unit).flatten(1)).norm(dim=1) for field in (prediction - target, target))
    return error / size.clamp_min(1e-6)


def spectral_error(prediction: Tensor, target: Tensor, unit: Tensor) -> Tensor:
    """Return how far the Fourier amplitudes along space are off: (B,).

    Each octave of wave numbers counts by itself, so that fine structure counts beside coarse. Blind to
    phases, and to the mean.
    """
    bands = _bands(tuple(target.shape[2:]), target.device)
    axes = tuple(range(2, target.ndim))
    ours, theirs = (
        torch.fft.rfftn(field.float() / unit, dim=axes, norm="forward").abs().flatten(2)
        for field in (prediction, target)
    )
    # In float64, which autocast leaves alone.
    error, size = (values.double().square().sum(dim=1) @ bands for values in (ours - theirs, theirs))
    least = (_QUIET * size.sum(dim=1, keepdim=True)).clamp_min(1e-12)
    return _root(error / torch.maximum(size, least))[:, 1:].mean(dim=1).float()


def conservation_error(prediction: Tensor, target: Tensor, unit: Tensor) -> Tensor:
    """Return the error of the mean over space, each channel's mass, over the target's size: (B,).

    At most the relative error.
    """
    axes = tuple(range(2, target.ndim))
    error = ((prediction - target) / unit).mean(dim=axes).norm(dim=1)
    size = (target / unit).square().mean(dim=axes).sum(dim=1).sqrt()
    return error / size.clamp_min(1e-6)


TERMS: dict[str, Term] = {
    "relative": relative_error,
    "spectral": spectral_error,
    "conservation": conservation_error,
}
WITH_TIME = frozenset({"conservation"})
"""What has no effect with a steady problem: it has nothing to keep."""


@lru_cache(maxsize=16)
def _bands(grid: tuple[int, ...], device: torch.device) -> Tensor:
    """Return how often each mode of a real transform counts in the mean and in each octave.

    (modes, 1 + octaves), row by row. Those of the last axis but its first and its middle stand for their
    mirror images, too.
    """
    *full, last = grid
    axes = [*(torch.fft.fftfreq(points) * points for points in full), torch.arange(last // 2 + 1.0)]
    numbers = torch.stack(torch.meshgrid(*axes, indexing="ij")).norm(dim=0)
    times = torch.where((axes[-1] == 0) | (axes[-1] == last / 2), 1.0, 2.0)
    bands = torch.where(numbers > 0, 1 + numbers.clamp_min(1).log2().floor(), 0)
    return (functional.one_hot(bands.long()) * times[:, None]).flatten(0, -2).double().to(device)


def _root(squares: Tensor) -> Tensor:
    """Return the square root; where that is zero, it has no gradient."""
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)
