"""Scores of full rollouts: as their definitions say, the same on any number of ranks, beside their floors."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.trainer.conftest import together
from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask
from vastrun.trainer.distributed.group import Ranks
from vastrun.trainer.engine.session_builder import domain_of
from vastrun.trainer.evaluation import Evaluation, evaluate, final_scores, report
from vastrun.trainer.evaluation.evaluation import WHOLE
from vastrun.trainer.evaluation.scores import Scores
from vastrun.trainer.job.data_config import DataConfig
from vastrun.trainer.job.scores import score_lines
from vastrun.trainer.models.operator import Scale

pytestmark = pytest.mark.torch

POINTS, FRAMES = 32, 5
LIFT, WAVE = 0.25, 5
SLOW, FAST, TOO_FAST = -0.3, 0.0, 9.0
DATA = DataConfig(betas=(10**SLOW, 1.0))


class MadeUp(nn.Module):
    """Adds to each frame a constant, and a wave as high as its first condition."""

    def __init__(self, train: Trajectories) -> None:
        super().__init__()
        self._scale = Scale(domain_of(train))
        self._scale.set(*train.moments())

    def scale(self, task: int) -> Scale:
        return self._scale

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        height = conditions[:, :1].where(conditions[:, :1] < TOO_FAST, math.inf)
        return self._scale.denormalise((LIFT + height * wave()).unsqueeze(1), u)


class Usual(MadeUp):
    """Adds nothing."""

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        return self._scale.denormalise(torch.zeros_like(u), u)


def wave() -> Tensor:
    """(X,)"""
    return torch.sin(2 * math.pi * WAVE * (torch.arange(POINTS) + 0.5) / POINTS)


def still(told: list[float], *, seed: int) -> Trajectories:
    """Trajectories in which nothing happens: what an operator adds is its error."""
    first = 1 + torch.rand(len(told), 1, 1, POINTS, generator=torch.Generator().manual_seed(seed))
    conditions = torch.tensor([[value, -1.0] for value in told])
    return Trajectories(fields=first.repeat(1, FRAMES, 1, 1), conditions=conditions)


def evaluated(ranks: Ranks, told: list[float]) -> Evaluation:
    """Of test samples with these conditions, by an operator that makes what happens up."""
    task = TrajectoryTask(still([SLOW, FAST] * 3, seed=1), still(told, seed=2))
    return evaluate(MadeUp(task.train), 0, DATA, task, ranks, lambda: None)


def test_every_score_is_what_its_definition_says(alone: Ranks) -> None:
    told = np.array([SLOW, FAST] * 4)
    found = evaluated(alone, told.tolist()).scores[WHOLE]["rollout"]
    std = float(still([SLOW, FAST] * 3, seed=1).moments()[1][1])
    truth = still(told.tolist(), seed=2).fields[:, 0, 0].double().numpy()
    steps = np.arange(1, FRAMES)
    error = steps[None, :, None] * std * (LIFT + told[:, None, None] * wave().double().numpy())  # (N, T, X)
    root, size = np.sqrt((error**2).mean(2)), np.sqrt((truth**2).mean(1))[:, None]
    expected = {
        "nrmse": (root / size).mean(),
        "nrmse_median": np.sort((root / size).ravel())[(root.size - 1) // 2],
        "nrmse_pooled": np.sqrt((error**2).sum() / (len(steps) * POINTS * (size**2).sum())),
        "rmse": root.mean(),
        "boundary_rmse": np.sqrt((error[:, :, [0, -1]] ** 2).mean(2)).mean(),
        "conservation_rmse": (steps * std * LIFT).mean(),
        "max_error": np.abs(error).max(),
        "spectrum_low": (steps * std * LIFT / np.sqrt(4)).mean(),  # one of four rings
        "spectrum_mid": (np.outer(np.abs(told), steps) * std / 2 / np.sqrt(8)).mean(),  # one of eight
        "spectrum_high": 0.0,
        "diverged": 0,
    }
    assert found.numbers() == pytest.approx(expected, rel=1e-4, abs=1e-6)
    assert found.nrmse_by_frame == pytest.approx((root / size).mean(0).tolist(), rel=1e-4)


def test_floors_are_what_needs_no_learning_and_what_the_parameter_is_worth(alone: Ranks) -> None:
    found = evaluated(alone, [SLOW, FAST] * 4)
    whole = {name: scores.nrmse for name, scores in found.scores[WHOLE].items()}
    assert whole["persistence"] == whole["one_step_persistence"] == 0  # nothing happens
    truth = still([SLOW, FAST] * 4, seed=2).fields[:, 0]
    ratios = (truth - truth.mean(2, keepdim=True)).norm(dim=2) / truth.norm(dim=2)
    assert whole["spatial_mean"] == pytest.approx(float(ratios.mean()), rel=1e-5)
    assert list(found.scores) == [WHOLE, "beta 0.5012", "beta 1"]
    slow, fast = (found.scores[label] for label in ("beta 0.5012", "beta 1"))
    assert fast["rollout"].spectrum_mid == pytest.approx(0, abs=1e-6)
    # Told the mean parameter, the model says the same of both.
    assert slow["blind"].spectrum_mid == pytest.approx(fast["blind"].spectrum_mid, rel=1e-5)
    assert slow["blind"].spectrum_mid == pytest.approx(slow["rollout"].spectrum_mid / 2, rel=1e-5)


def test_the_floor_of_a_steady_problem_is_the_nearest_solution(alone: Ranks) -> None:
    given, answers = torch.rand(6, 1, 4, 4), torch.arange(6.0).reshape(6, 1, 1, 1).expand(6, 1, 4, 4) + 1
    told = torch.tensor([[0.0], [1.0]] * 3)
    problems = Trajectories(fields=torch.stack([given, answers], 1), conditions=told, steady=True)
    data = DataConfig(task="darcy", sources=(1.0, 10.0))
    found = evaluate(Usual(problems), 0, data, TrajectoryTask(problems, problems), alone, lambda: None)
    assert list(found.scores) == [WHOLE, "source 1", "source 10"]
    assert list(found.scores[WHOLE]) == ["rollout", "blind", "nearest"]
    assert found.scores[WHOLE]["nearest"].nrmse == pytest.approx(0, abs=1e-6)
    # What a fresh model says is the mean of all, 3.5.
    assert found.scores["source 1"]["rollout"].nrmse == pytest.approx((2.5 + 0.5 / 3 + 1.5 / 5) / 3)


def turning(told: Tensor) -> Trajectories:
    """Waves that turn as fast as their first frame's height says: one number is the input."""
    heights, frames = 1 + told[:, None, None, None], torch.arange(FRAMES)[None, :, None, None]
    places = 2 * math.pi * (torch.arange(POINTS) + 0.5) / POINTS
    return Trajectories(
        fields=heights * torch.sin(places + heights * frames / 4), conditions=0 * told[:, None]
    )


class Copying(Usual):
    """Returns the next frame of the training frame that is nearest."""

    def __init__(self, train: Trajectories) -> None:
        super().__init__(train)
        self.before, self.after = (
            frames.flatten(0, 1) for frames in (train.fields[:, :-1], train.fields[:, 1:])
        )

    def forward(self, u: Tensor, conditions: Tensor, task: int = 0) -> Tensor:
        return self.after[torch.cdist(u.flatten(1), self.before.flatten(1)).argmin(dim=1)]


def test_a_network_that_copies_training_trajectories_is_no_better_than_its_floor(alone: Ranks) -> None:
    train, test = (
        turning(torch.rand(count, generator=torch.Generator().manual_seed(count))) for count in (40, 9)
    )
    found = evaluate(Copying(train), 0, DATA, TrajectoryTask(train, test), alone, lambda: None)
    scores = {name: own.nrmse for name, own in found.scores[WHOLE].items()}
    assert scores["rollout"] == pytest.approx(scores["nearest"], rel=1e-5)
    assert scores["interpolation"] < 0.05 * scores["nearest"]
    [line] = score_lines(final_scores([found]))
    assert "NO better than interpolation between training trajectories" in line
    assert "one-parameter set" in line


def moving(speeds: list[float], seed: int) -> Trajectories:
    """Waves with these speeds, 16 of each."""
    stream = torch.Generator().manual_seed(seed)
    sizes, phases = (torch.rand(16 * len(speeds), 3, 1, generator=stream) for _ in range(2))
    speed = torch.tensor(speeds).repeat(16)
    place = (torch.arange(POINTS) + 0.5) / POINTS - 0.1 * speed[:, None, None] * torch.arange(21.0)[:, None]
    waves = torch.sin(
        2 * math.pi * (torch.arange(1.0, 4)[:, None, None] * place[:, None] + phases[..., None])
    )
    conditions = torch.stack([speed.log10(), torch.full_like(speed, -1.0)], dim=1)
    return Trajectories(
        fields=(sizes[..., None] * waves).sum(1)[:, :, None], conditions=conditions, symmetry="shift"
    )


def test_between_trained_speeds_the_linear_map_turns_and_our_solver_needs_few_points(alone: Ranks) -> None:
    train = moving([0.4, 0.55, 0.8, 1.0], 1)
    task = TrajectoryTask(train, moving([0.4, 1.0], 2), moving([0.7], 3))
    found = evaluate(Usual(train), 0, DATA, task, alone, lambda: None)
    unseen = {name: own.nrmse for name, own in found.scores["unseen"].items()}
    assert unseen["linear_map"] < 1e-3 < unseen["nearest"]
    assert unseen["solver_half"] < 1e-4 and unseen["solver_quarter"] < 1e-4
    assert found.ms["solver_half"] > 0
    assert "interpolation" not in unseen
    line = score_lines(final_scores([found]))[0]
    assert "at parameters that were not trained: " in line and line.count("NO better than") == 2


def numbers(scores: Mapping[str, Mapping[str, Scores]]) -> dict[str, float]:
    """All of them, each by its place."""
    found = {}
    for label, parts in scores.items():
        for name, score in parts.items():
            for field, value in asdict(score).items():
                for place, number in enumerate(value if isinstance(value, tuple) else (value,)):
                    found[f"{label} {name} {field} {place}"] = number
    return found


def test_any_number_of_ranks_finds_the_same(alone: Ranks) -> None:
    told = [SLOW, FAST, SLOW, SLOW, FAST, SLOW, FAST]
    expected = evaluated(alone, told)
    for found in together(evaluated, 3, told):
        # But for the last digits: the transform adds up in an order that depends on where its numbers lie.
        assert numbers(found.scores) == pytest.approx(numbers(expected.scores), rel=1e-9, abs=1e-15)
        assert found.spectra.allclose(expected.spectra, rtol=1e-12)
        for example, one in zip(found.examples, expected.examples, strict=True):
            assert torch.equal(example.rollout, one.rollout)
            assert torch.equal(example.truth, one.truth)


def test_a_rollout_that_runs_away_is_counted_and_told_in_the_report(alone: Ranks, tmp_path: Path) -> None:
    found = evaluated(alone, [SLOW, FAST, SLOW, TOO_FAST])
    scores = final_scores([found])
    assert scores["rollout_diverged"] == 1
    assert "rollout_nrmse" not in scores
    assert math.isfinite(scores["rollout_nrmse_median"])
    summary = report.EvaluationSummary(evaluations=[found], comparisons=[])
    summary.write(tmp_path, "run, step 3", alone, plots=False, beat=lambda: None)
    text = (tmp_path / report.REPORT).read_text()
    assert "rollout nRMSE is infinite, 1 rollouts diverged; persistence has 0" in text
    own = json.loads((tmp_path / report.SCORES).read_text())["advection"]
    assert own["parts"][WHOLE]["rollout"]["nrmse"] is None
    assert own["parts"]["beta 1"]["rollout"]["nrmse"] == found.scores["beta 1"]["rollout"].nrmse
    assert len(own["parts"]["beta 1"]["rollout"]["nrmse_by_frame"]) == FRAMES - 1
