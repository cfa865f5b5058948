"""Objectives: the loss of the operator stage, relative errors of a few predicted frames, and its terms.

Shapes of the terms: fields (B, K, *X) in physical units; `unit` (1, K, *1) makes channels comparable. Of K
channels, those that do not change with time are left out.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from vastrun.trainer.data.trajectories import Windows
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.job.config import ObjectiveConfig
from vastrun.trainer.models.operator import Network, NetworkOperator, Operator

Term = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Maps a prediction, its target and the unit to errors (B,), zero for a perfect prediction."""

_MIN_OCTAVE_SHARE = 1e-2
"""Smallest share of a field's power that an octave counts with: relative to almost nothing, any error would
be large."""


class Objective(nn.Module, ABC):
    """Loss of a stage: (1,), or (1 + terms,) when it has several terms.

    A module, so that a wrapper sees one forward and one backward pass per micro-batch.
    """

    operator: Operator
    """Operator that is evaluated: the network that learns, and the frozen ones that it uses."""

    @property
    @abstractmethod
    def learner(self) -> Network:
        """Network that learns. Its first use in a forward pass must have a gradient."""

    @property
    def networks(self) -> list[Network]:
        """All networks, frozen ones included."""
        return [module for module in self.operator.modules() if isinstance(module, Network)]

    @abstractmethod
    def forward(self, windows: Windows) -> Tensor: ...

    def initialise(self, batches: Sequence[Iterable[Windows]], ranks: Ranks) -> None:
        """Initialise from the former stage, without gradients; `batches` are the first ones, by task."""

    def update_average(self) -> None:
        """Update a moving average of the learner, after each optimiser step."""


class UnrollLoss(Objective):
    """Mean relative error of frames that are predicted one from the other, plus the job's further terms."""

    def __init__(self, operator: NetworkOperator, config: ObjectiveConfig | None = None) -> None:
        super().__init__()
        self.operator: NetworkOperator = operator
        self.weights = term_weights(config or ObjectiveConfig())

    @property
    def learner(self) -> Network:
        """The operator itself."""
        return self.operator

    def forward(self, windows: Windows) -> Tensor:
        """Return the loss (1,); with several terms (1 + terms,), the unweighted terms after the loss."""
        scale = self.operator.scale(windows.task)
        u = scale.perturb(windows.fields[:, 0], windows.noise)
        terms = []
        for target in windows.fields[:, 1:].unbind(1):
            u = self.operator(u, windows.conditions, windows.task)
            shown = map(scale.moving, (u, target, scale.std[1:]))
            terms.append(self._terms(*shown, steady=scale.steady))
        means = torch.stack(terms).mean(dim=0)
        if len(self.weights) == 1:
            return means
        loss = sum(weight * mean for weight, mean in zip(self.weights.values(), means, strict=True))
        # Without a gradient: the terms are only logged, the gradient is that of their weighted sum.
        return torch.stack([loss, *means.detach()])

    def _terms(self, prediction: Tensor, target: Tensor, unit: Tensor, *, steady: bool) -> Tensor:
        """Return each term's mean over the windows: (terms,)."""
        errors = [
            target.new_zeros(1)
            if steady and name in TIME_DEPENDENT
            else TERMS[name](prediction, target, unit)
            for name in self.weights
        ]
        return torch.stack([error.mean() for error in errors])


def term_weights(config: ObjectiveConfig) -> dict[str, float]:
    """Return the weights of the terms that are computed, by name."""
    return {name: weight for name, weight in {"relative": 1.0, **vars(config)}.items() if weight > 0}


def term_names(config: ObjectiveConfig) -> tuple[str, ...]:
    """Return the names under which the terms are logged; empty when there is only one."""
    names = tuple(f"loss_{name}" for name in term_weights(config))
    return names if len(names) > 1 else ()


def relative_error(prediction: Tensor, target: Tensor, unit: Tensor) -> Tensor:
    """Return the norm of the error over the norm of the target: (B,)."""
    error, size = (((field / unit).flatten(1)).norm(dim=1) for field in (prediction - target, target))
    return error / size.clamp_min(1e-6)


def spectral_error(prediction: Tensor, target: Tensor, unit: Tensor) -> Tensor:
    """Return the relative error of the spatial Fourier amplitudes, mean over octaves: (B,).

    Each octave of wavenumbers has the same weight, so that fine structure counts as much as coarse. Phases
    and the mean have no effect.
    """
    bands = _bands(tuple(target.shape[2:]), target.device)
    axes = tuple(range(2, target.ndim))
    predicted, true = (
        torch.fft.rfftn(field.float() / unit, dim=axes, norm="forward").abs().flatten(2)
        for field in (prediction, target)
    )
    # In float64, which autocast leaves alone.
    error, size = (values.double().square().sum(dim=1) @ bands for values in (predicted - true, true))
    min_size = (_MIN_OCTAVE_SHARE * size.sum(dim=1, keepdim=True)).clamp_min(1e-12)
    # The gradient of the root is zero at zero.
    squares = error / torch.maximum(size, min_size)
    positive = squares > 0
    return torch.where(positive, torch.where(positive, squares, 1.0).sqrt(), 0.0)[:, 1:].mean(dim=1).float()


def conservation_error(prediction: Tensor, target: Tensor, unit: Tensor) -> Tensor:
    """Return the error of the spatial mean (the mass of each channel), relative to the target's norm: (B,).

    Never larger than the relative error.
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
TIME_DEPENDENT = frozenset({"conservation"})
"""Terms that are zero for a steady problem: without time nothing is conserved."""


@lru_cache(maxsize=16)
def _bands(grid: tuple[int, ...], device: torch.device) -> Tensor:
    """Return the multiplicity of each mode of a real transform in the mean and in each octave.

    (modes, 1 + octaves), row by row. A mode counts twice when its mirror image is left out: everywhere but at
    the first and the middle place of the last axis.
    """
    *full, last = grid
    axes = [*(torch.fft.fftfreq(points) * points for points in full), torch.arange(last // 2 + 1.0)]
    numbers = torch.stack(torch.meshgrid(*axes, indexing="ij")).norm(dim=0)
    times = torch.where((axes[-1] == 0) | (axes[-1] == last / 2), 1.0, 2.0)
    bands = torch.where(numbers > 0, 1 + numbers.clamp_min(1).log2().floor(), 0)
    return (functional.one_hot(bands.long()) * times[:, None]).flatten(0, -2).double().to(device)
