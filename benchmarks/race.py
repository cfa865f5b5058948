"""Race: the training of a candidate against the clock, and the errors of its rollouts.

On a CPU the time is that of the process, which other users of the computer do not change; on a GPU wall time.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from vastrun.trainer import models
from vastrun.trainer.data import Source, Task
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.engine.ema import Ema
from vastrun.trainer.engine.optimiser import LearningRateSchedule, make_optimizer, set_learning_rate
from vastrun.trainer.engine.session_builder import domain_of, fit, space_of
from vastrun.trainer.job.config import ModelConfig, OptimConfig
from vastrun.trainer.models.operator import Domain, NetworkOperator
from vastrun.trainer.sampling.windows import draw_indices
from vastrun.trainer.stages.objective import UnrollLoss

UNROLL = 3
_NOISE = 0.01
_TICKS = 10_000
"""Parts of a training's time, to which the schedule of the rate is cut."""
_EMA_DECAY = 0.9995
TRAINING = {"unroll": UNROLL, "noise": _NOISE, "ema": _EMA_DECAY}
"""How every candidate is trained."""
_GPU_STEPS = 25
"""Steps between two looks at the clock on a GPU, which would wait for it."""
_BATCH = 64
_MIN_SIZE = 1e-12
_EPSILON = 1e-7
"""Added to the variance, as The Well does."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model and how it is trained."""

    model: str
    """One of ours, or `module:attribute`."""
    optimiser: str
    """Name and rate."""
    batch: int
    options: Mapping[str, int]
    """Sizes of the model; `patches`, along an axis, stands for those of the patch."""

    def __str__(self) -> str:
        sizes = [f"{key} {value}" for key, value in self.options.items()]
        return ", ".join([self.optimiser, f"batch {self.batch}", *sizes])

    @property
    def optim(self) -> OptimConfig:
        """Options of the optimiser."""
        name, rate = self.optimiser.split()
        return OptimConfig(name=name, lr=float(rate))  # type: ignore[arg-type]

    def config(self, domain: Domain) -> ModelConfig:
        """Return the options of the model."""
        options: dict[str, Any] = dict(self.options)
        if patches := options.pop("patches", 0):
            options["patch"] = domain.grid[0] // patches
        if not ModelConfig(name=self.model).is_own:
            return ModelConfig(name=self.model, **options)
        if self.model.startswith("unets:"):
            options["periodic"] = domain.periodic
        return ModelConfig(name=self.model, options=options)

    def build(self, train: Source) -> NetworkOperator:
        """Build the model for the task of a training set."""
        domain = domain_of(train)
        operator = models.make(self.config(domain), [domain])
        operator.scale(0).set(*train.moments())
        return operator


def _wall_s() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


class Racer:
    """A candidate in training. Its error is that of the moving average of its weights."""

    def __init__(
        self, task: Task, candidate: Candidate, seed: int, *, optim: OptimConfig | None = None
    ) -> None:
        torch.manual_seed(seed)
        device = task.test.fields.device
        self.candidate, self.steps, self.spent_s = candidate, 0, 0.0
        self.operator: NetworkOperator = candidate.build(task.train).to(device)
        self._task, self._seed = task, seed
        self._clock: Callable[[], float] = _wall_s if device.type == "cuda" else time.process_time
        self._turn = _GPU_STEPS if device.type == "cuda" else 1
        self._space = space_of(task.train, UNROLL)
        fit(task, self.operator)
        self._objective = UnrollLoss(self.operator)
        self._optim = optim or candidate.optim
        self._optimizer = make_optimizer(self.operator, self._optim)
        self._ema = Ema(self.operator, _EMA_DECAY)

    def train_until(self, seconds: float, total_s: float) -> None:
        """Train until `seconds` are spent of a training of `total_s`, by which the rate decays."""
        schedule = LearningRateSchedule(self._optim, _TICKS)
        while self.spent_s < seconds:
            began = self._clock()
            set_learning_rate(
                self._optimizer, schedule.rate(min(_TICKS - 1, int(_TICKS * self.spent_s / total_s)))
            )
            for _ in range(self._turn):
                self._step()
            self.spent_s += self._clock() - began

    def _step(self) -> None:
        drawn = draw_indices(
            self._seed, self.steps, batch=self.candidate.batch, noise=_NOISE, space=self._space
        )
        windows = self._task.batch(self.steps, drawn)
        self._optimizer.zero_grad()
        self._objective(windows)[0].backward()
        clip_grad_norm_(self.operator.parameters(), self._optim.clip, foreach=True)
        self._optimizer.step()
        self._ema.update(self.steps)
        self.steps += 1

    def errors(self, test: Trajectories) -> "Errors":
        """Return the errors of rollouts, each frame from the one before."""
        with self._ema.average_parameters():
            return errors(partial(roll_out, self.operator, test.frames - 1), test)


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of rollouts, mean over frames and channels; infinite where they diverged."""

    nrmse: Tensor
    """(N,): of the error over that of the truth."""
    vrmse: Tensor
    """(N,): of the error over the deviation of the truth from its mean over space."""
    ms: float
    """Milliseconds of a rollout."""


def roll_out(operator: NetworkOperator, frames: int, u: Tensor, conditions: Tensor) -> Tensor:
    """Return so many frames (B, T, K, *X) after fields `u` (B, K, *X)."""
    found = []
    for _ in range(frames):
        u = operator(u, conditions).float()
        found.append(u)
    return torch.stack(found, dim=1)


@torch.no_grad()
def errors(predict: Callable[[Tensor, Tensor], Tensor], test: Trajectories) -> Errors:
    """Return the errors of predictions of trajectories, with or without their first frames, from those."""
    moving = slice(test.channels - test.static)
    clock = _wall_s if test.fields.device.type == "cuda" else time.process_time
    spent_s, found = 0.0, list[tuple[Tensor, Tensor]]()
    for fields, conditions in zip(test.fields.split(_BATCH), test.conditions.split(_BATCH), strict=True):
        began = clock()
        predicted = predict(fields[:, 0], conditions)[:, 1 - test.frames :]
        spent_s += clock() - began
        truth, error = (
            each[:, :, moving].flatten(3).double() for each in (fields[:, 1:], predicted - fields[:, 1:])
        )
        square = error.square().mean(dim=3)
        sizes = truth.square().mean(dim=3).clamp_min(_MIN_SIZE), truth.var(dim=3, correction=0) + _EPSILON
        nrmse, vrmse = ((square / size).sqrt().mean(dim=(1, 2)) for size in sizes)
        found.append((nrmse, vrmse))
    nrmse, vrmse = (torch.cat(each).nan_to_num(nan=torch.inf) for each in zip(*found, strict=True))
    return Errors(nrmse=nrmse, vrmse=vrmse, ms=1000 * spent_s / len(test))


def search(
    task: Task, held_out: Trajectories, tried: Sequence[Candidate], first_s: float
) -> Iterator[tuple[Candidate, float, float]]:
    """Train all candidates for `first_s`, the better half twice as long, and so on; yield each with its time
    and its error when it was left. The last is the best.

    The rate is constant after its warm-up, so that a short training is the beginning of a long one.
    """
    racers = [Racer(task, each, seed=0, optim=replace(each.optim, schedule="constant")) for each in tried]
    seconds = first_s
    while racers:
        ranked = []
        for racer in racers:
            racer.train_until(seconds, total_s=10 * first_s)
            ranked.append((racer.errors(held_out).nrmse.mean().item(), len(ranked), racer))
        ranked.sort()
        keep = len(ranked) // 2 if len(ranked) > 3 else 0
        for error, _, racer in reversed(ranked[keep:]):
            yield racer.candidate, seconds, error
        racers = [racer for _, _, racer in ranked[:keep]]
        seconds *= 2
