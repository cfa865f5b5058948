"""The error that the latent operator and a Fourier neural operator of its size come to in equal time.

Both take their steps in turns, so that other users of the computer do not decide. On a CPU the time is that
of a processor, on a GPU it is wall time. Each has the optimiser, the rate, and the patch or the number of
frequencies with which it did best on samples that were kept back.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.nn.utils import clip_grad_norm_

from benchmarks.figures import mean_with_range
from benchmarks.operators import as_large
from vastrun.contract.config import DataConfig, ModelConfig, OptimConfig
from vastrun.trainer import data, models
from vastrun.trainer.data import Task
from vastrun.trainer.data.trajectories import Trajectories
from vastrun.trainer.engine.optimiser import LearningRateSchedule, make_optimizer, set_learning_rate
from vastrun.trainer.engine.session import domain_of, space_of
from vastrun.trainer.models.operator import NetworkOperator
from vastrun.trainer.sampling.windows import draw_indices
from vastrun.trainer.stages.objective import UnrollLoss

SECONDS = 30.0
"""Time of each training."""
SHORTER = 0.4
"""Share of that for the trainings by which rates are chosen."""
SEEDS = 3
UNROLL = 3
NOISE = 0.01
TICKS = 10_000
"""Parts of a training's time, to which the schedule of the rate is cut."""
OPTIMISERS = (
    OptimConfig(lr=2e-3),
    OptimConfig(lr=6e-3),
    OptimConfig(name="muon", lr=5e-3),
    OptimConfig(name="muon", lr=1.5e-2),
)
"""What is tried for both models."""
SIZES = {"latent": (8, 16, 32), "fno": (12, 16, 24)}
"""What else is tried: points of a patch along an axis; frequencies along an axis, whose width follows."""
CASES = {
    "advection": DataConfig(task="advection", validation=32, points=256),
    "burgers": DataConfig(task="burgers", validation=32, points=256),
    "darcy": DataConfig(task="darcy", validation=32, points=64),
}


def _wall_s() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the models are compared on one kind of device."""

    clock: Callable[[], float]
    """Seconds, when all work so far is done."""
    turn: int
    """Steps between two looks at the clock, which a GPU would wait for."""
    batch: int
    model: ModelConfig


SETTINGS = {
    "cpu": Setting(clock=time.process_time, turn=1, batch=24, model=ModelConfig()),
    "cuda": Setting(clock=_wall_s, turn=25, batch=64, model=ModelConfig(dim=256, depth=6, heads=8)),
}


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a model is trained."""

    optim: OptimConfig
    size: int

    def __str__(self) -> str:
        return f"{self.size}, {self.optim.name} {self.optim.lr:g}"


WAYS = {
    model: tuple(Way(optim=optim, size=size) for size in sizes for optim in OPTIMISERS)
    for model, sizes in SIZES.items()
}
"""All that are tried, by model."""


class Contestant:
    """A model in training, and the time that it has taken."""

    def __init__(self, task: Task, operator: NetworkOperator, optim: OptimConfig, seed: int) -> None:
        self.operator, self.steps, self.spent_s = operator, 0, 0.0
        self._task, self._seed = task, seed
        self._setting = SETTINGS[task.test.fields.device.type]
        self._space = space_of(task.train, UNROLL)
        self._objective = UnrollLoss(operator)
        self._optimizer = make_optimizer(operator, optim)
        self._schedule = LearningRateSchedule(optim, TICKS)

    def turn(self, seconds: float) -> None:
        """Take the steps of a turn, at the rate that is due after the share of the time that is spent."""
        rate = self._schedule.rate(min(TICKS - 1, int(TICKS * self.spent_s / seconds)))
        began = self._setting.clock()
        set_learning_rate(self._optimizer, rate)
        for _ in range(self._setting.turn):
            self._step()
        self.spent_s += self._setting.clock() - began

    def _step(self) -> None:
        batch = self._setting.batch
        drawn = draw_indices(self._seed, self.steps, batch=batch, noise=NOISE, space=self._space)
        windows = self._task.batch(self.steps, drawn)
        self._optimizer.zero_grad()
        self._objective(windows)[0].backward()
        clip_grad_norm_(self.operator.parameters(), 1.0, foreach=True)
        self._optimizer.step()
        self.steps += 1


@dataclass(frozen=True, kw_only=True)
class Result:
    """Of one training."""

    steps: int
    mean: float
    """nRMSE of rollouts: the mean over samples and frames, and the median."""
    median: float


def run(name: str, seconds: float = SECONDS, device: str = "cpu") -> None:
    """Choose each model's way, then train both with every seed; a row of the table for each model."""
    torch.set_num_threads(1)
    best, results = compare(CASES[name], torch.device(device), seconds, tuned_s=SHORTER * seconds)
    print(
        f"\n| {name}, {seconds:g} s | patch or frequencies, optimiser | steps | nRMSE, median | nRMSE, mean |"
    )
    print("| --- | --- | --: | --: | --: |")
    for model, way in best.items():
        mine = [result[model] for result in results]
        cells = (
            str(way),
            f"{statistics.mean(each.steps for each in mine):.0f}",
            mean_with_range([each.median for each in mine]),
            mean_with_range([each.mean for each in mine]),
        )
        print(f"| {model} | {' | '.join(cells)} |", flush=True)


def compare(
    case: DataConfig,
    device: torch.device,
    seconds: float,
    *,
    tuned_s: float,
    ways: Mapping[str, Sequence[Way]] = WAYS,
    seeds: int = SEEDS,
) -> tuple[dict[str, Way], list[dict[str, Result]]]:
    """Return each model's best way after trainings of `tuned_s`, and its results after `seconds`, by seed."""
    with tempfile.TemporaryDirectory() as folder:
        data.generate(case, Path(folder))
        task = data.make(case, Path(folder))
        held_out = data.validation(case, Path(folder))
    assert held_out is not None
    task.place(device)
    held_out = held_out.to(device)
    best = {model: _best_way(task, held_out, model, tried, tuned_s) for model, tried in ways.items()}
    return best, [_trained(task, task.test, best, seed, seconds) for seed in range(seeds)]


def _best_way(task: Task, held_out: Trajectories, model: str, ways: Sequence[Way], seconds: float) -> Way:
    """The one with the lowest error on what was kept back, of a seed that is not compared later."""
    errors = [_trained(task, held_out, {model: way}, SEEDS, seconds)[model].median for way in ways]
    tried = "; ".join(f"{way}: {error:.3g}" for way, error in zip(ways, errors, strict=True))
    print(f"{model}: {tried}", flush=True)
    return min(zip(errors, ways, strict=True), key=lambda each: each[0])[1]


def _trained(
    task: Task, test: Trajectories, ways: Mapping[str, Way], seed: int, seconds: float
) -> dict[str, Result]:
    """Each model, trained for so long, in turns."""
    torch.manual_seed(seed)
    contestants = {
        model: Contestant(task, _made(task, model, way.size), way.optim, seed) for model, way in ways.items()
    }
    while unready := [each for each in contestants.values() if each.spent_s < seconds]:
        for each in unready:
            each.turn(seconds)
    return {model: _result(each, test) for model, each in contestants.items()}


def _made(task: Task, model: str, size: int) -> NetworkOperator:
    domain, device = domain_of(task.train, None), task.test.fields.device
    config = SETTINGS[device.type].model
    operator = models.make(replace(config, patch=size) if model == "latent" else config, [domain])
    if model == "fno":
        operator = as_large(operator, domain, modes=size)
    operator = operator.to(device)
    operator.scale(0).set(*task.train.moments())
    return operator


@torch.no_grad()
def _result(contestant: Contestant, test: Trajectories) -> Result:
    u, errors = test.fields[:, 0], []
    for target in test.fields[:, 1:].unbind(1):
        u = contestant.operator(u, test.conditions)
        errors.append((u - target).flatten(1).norm(dim=1) / target.flatten(1).norm(dim=1).clamp_min(1e-6))
    of_all = torch.stack(errors)
    return Result(steps=contestant.steps, mean=of_all.mean().item(), median=of_all.median().item())
