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
    means = {
        "spatial_mean": truth.mean(2, keepdim=True),
        "training_mean": still([SLOW, FAST] * 3, seed=1).fields.mean(),
    }
    for name, mean in means.items():
        ratios = (truth - mean).norm(dim=2) / truth.norm(dim=2)
        assert whole[name] == pytest.approx(float(ratios.mean()), rel=1e-5), name
    assert list(found.scores) == [WHOLE, "beta 0.5012", "beta 1"]
    slow, fast = (found.scores[label] for label in ("beta 0.5012", "beta 1"))
    assert fast["rollout"].spectrum_mid == pytest.approx(0, abs=1e-6)
    # Told the mean parameter, the model says the same of both.
    assert slow["blind"].spectrum_mid == pytest.approx(fast["blind"].spectrum_mid, rel=1e-5)
    assert slow["blind"].spectrum_mid == pytest.approx(slow["rollout"].spectrum_mid / 2, rel=1e-5)


def test_the_floor_of_a_steady_problem_is_the_training_mean_field_at_the_same_parameter(alone: Ranks) -> None:
    given, answers = torch.rand(6, 1, 4, 4), torch.arange(6.0).reshape(6, 1, 1, 1).expand(6, 1, 4, 4) + 1
    told = torch.tensor([[0.0], [1.0]] * 3)
    problems = Trajectories(fields=torch.stack([given, answers], 1), conditions=told, steady=True)
    task = TrajectoryTask(problems, problems)
    data = DataConfig(task="darcy", sources=(1.0, 10.0))
    found = evaluate(Usual(problems), 0, data, task, alone, lambda: None)
    assert list(found.scores) == [WHOLE, "source 1", "source 10"]
    assert list(found.scores[WHOLE]) == ["rollout", "training_mean", "kernel_ridge", "blind"]
    # Of 1, 3 and 5 the mean is 3; of 2, 4 and 6 it is 4. What a fresh model says is that of all, 3.5.
    assert found.scores["source 1"]["training_mean"].nrmse == pytest.approx((2 / 1 + 0 + 2 / 5) / 3)
    assert found.scores["source 10"]["training_mean"].nrmse == pytest.approx((2 / 2 + 0 + 2 / 6) / 3)
    assert found.scores["source 1"]["rollout"].nrmse == pytest.approx((2.5 + 0.5 / 3 + 1.5 / 5) / 3)


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
