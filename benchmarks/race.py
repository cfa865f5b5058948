"""Race: the training of a candidate against the clock, and the errors of its rollouts on Burgers' equation.

On a CPU the time is that of the process, which other users of the computer do not change; on a GPU wall time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from vastrun.trainer import data, models
from vastrun.trainer.data import Source, Task
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.engine.ema import Ema
from vastrun.trainer.engine.optimiser import LearningRateSchedule, make_optimizer, set_learning_rate
from vastrun.trainer.engine.session_builder import domain_of, fit, space_of
from vastrun.trainer.job.config import ModelConfig, OptimConfig
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.models.operator import NetworkOperator
from vastrun.trainer.sampling.windows import draw_indices
from vastrun.trainer.stages.objective import UnrollLoss

UNROLL = 3
_TICKS = 10_000
"""Parts of a training's time, to which the schedule of the rate is cut."""
_EMA_DECAY = 0.9995
_GPU_STEPS = 25
"""Steps between two looks at the clock on a GPU, which would wait for it."""
_BATCH = 64
_SEED, _TEST_SEED = 2022, 1_002_022
_TRAIN, _HELD_OUT, _TEST = 64, 8, 256
_BURGERS = DataConfig(task="burgers", points=256, ranges={"nus": (0.01, 0.1)}, range_values=8)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A model and how it is trained."""

    model: str
    optimiser: str
    batch: int
    dim: int
    depth: int
    modes: int
    points: int = 0

    def __str__(self) -> str:
        sizes = [f"{key} {value}" for key, value in list(asdict(self).items())[2:] if value]
        return ", ".join([self.optimiser, *sizes])

    @property
    def optim(self) -> OptimConfig:
        """Options of the optimiser."""
        name, rate = self.optimiser.split()
        return OptimConfig(name=name, lr=float(rate))  # type: ignore[arg-type]

    def build(self, train: Source) -> NetworkOperator:
        """Build the model for the task of a training set."""
        config = ModelConfig(name=self.model, dim=self.dim, depth=self.depth, modes=self.modes)
        operator = models.make(
            replace(config, points=self.points) if self.points else config, [domain_of(train)]
        )
        operator.scale(0).set(*train.moments())
        return operator


def load(folder: Path, device: torch.device) -> tuple[Task, Trajectories, Trajectories]:
    """Return a task, samples to choose candidates by, and 256 test conditions at each end of the range."""
    task = _make(replace(_BURGERS, seed=_SEED, train=_TRAIN, test=_HELD_OUT), folder / "train")
    held_out = task.test.to(device)
    task.place(device)
    ends = replace(_BURGERS, seed=_TEST_SEED, ranges={}, nus=_BURGERS.ranges["nus"], train=1, test=_TEST)
    return task, held_out, _make(ends, folder / "test").test.to(device)


def _make(config: DataConfig, folder: Path) -> Task:
    folder.mkdir(parents=True)
    data.generate(config, folder)
    return data.make_task(config, folder)


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
            self._seed, self.steps, batch=self.candidate.batch, noise=0.01, space=self._space
        )
        windows = self._task.batch(self.steps, drawn)
        self._optimizer.zero_grad()
        self._objective(windows)[0].backward()
        clip_grad_norm_(self.operator.parameters(), self._optim.clip, foreach=True)
        self._optimizer.step()
        self._ema.update(self.steps)
        self.steps += 1

    def averaged(self) -> AbstractContextManager[None]:
        """Use the average of the weights inside the block."""
        return self._ema.average_parameters()

    def errors(self, test: Trajectories) -> Tensor:
        """Return the nRMSE of rollouts (N, T), each frame from the one before."""
        with self.averaged():
            return rollout_errors(self.operator, test)


@torch.no_grad()
def rollout_errors(predict: Callable[[Tensor, Tensor], Tensor], test: Trajectories) -> Tensor:
    """Return the nRMSE of each sample and frame, mean over channels: (N, T), infinite where it diverged."""
    moving = slice(test.channels - test.static)
    found = []
    for fields, conditions in zip(test.fields.split(_BATCH), test.conditions.split(_BATCH), strict=True):
        u, frames = fields[:, 0], []
        for target in fields[:, 1:].unbind(1):
            u = predict(u, conditions).float()
            error, size = (
                each[:, moving].flatten(2).norm(dim=2).clamp_min(floor)
                for each, floor in ((u - target, 0.0), (target, 1e-6))
            )
            frames.append((error / size).mean(dim=1))
        found.append(torch.stack(frames, dim=1))
    return torch.cat(found).nan_to_num(nan=torch.inf)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A candidate that was tried, and its error when it was left."""

    candidate: Candidate
    seconds: float
    error: float


def search(task: Task, held_out: Trajectories, tried: Sequence[Candidate], first_s: float) -> Iterator[Trial]:
    """Train all candidates for `first_s`, the better half twice as long, and so on. The last is the best.

    The rate is constant after its warm-up, so that a short training is the beginning of a long one.
    """
    racers = [Racer(task, each, seed=0, optim=replace(each.optim, schedule="constant")) for each in tried]
    seconds = first_s
    while racers:
        ranked = []
        for racer in racers:
            racer.train_until(seconds, total_s=10 * first_s)
            ranked.append((racer.errors(held_out).mean().item(), len(ranked), racer))
        ranked.sort()
        keep = len(ranked) // 2
        for error, _, racer in reversed(ranked[keep:] if keep else ranked):
            yield Trial(candidate=racer.candidate, seconds=seconds, error=error)
        racers = [racer for _, _, racer in ranked[:keep]]
        seconds *= 2
