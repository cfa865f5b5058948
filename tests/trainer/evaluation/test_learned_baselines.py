"""Learned baselines: exact where the problem is linear, fitted to the training set alone, repeatable."""

import math

import pytest
import torch
from torch import Tensor

from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask
from vastrun.trainer.evaluation.learned_baselines import fit_baseline
from vastrun.trainer.job.scores import score_lines
from vastrun.trainer.models.linear_map import LinearMap
from vastrun.trainer.sampling.windows import Symmetry

pytestmark = pytest.mark.torch

POINTS, FRAMES = 16, 6


def rolled(first: Tensor, step: object, symmetry: Symmetry, told: list[float]) -> Trajectories:
    """Trajectories whose next frame is `step` of the present one."""
    frames = [first.double()]
    for _ in range(FRAMES - 1):
        frames.append(step(frames[-1]))  # type: ignore[operator]
    conditions = torch.tensor([[value, -1.0] for value in told])
    return Trajectories(fields=torch.stack(frames, 1).float(), conditions=conditions, symmetry=symmetry)


def drawn(count: int, channels: int, grid: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(count, channels, *grid, generator=torch.Generator().manual_seed(seed))


def fitted(train: Trajectories, test: Trajectories | None = None) -> LinearMap:
    parameters = train.conditions.unique(dim=0)
    found = fit_baseline(TrajectoryTask(train, test or train), parameters, lambda: None)
    assert found is not None
    return found


def error(train: Trajectories, test: Trajectories) -> float:
    """The largest error of a rollout of the map that is fitted to `train`."""
    baseline, u, worst = fitted(train), test.fields[:, 0], 0.0
    for target in test.fields[:, 1:].unbind(1):
        u = baseline.predict(u, test.conditions).float()
        worst = max(worst, float((u - target).abs().max()))
    return worst


def move(u: Tensor) -> Tensor:
    """One channel moves by a point, the other decays and is fed by it; a constant is added to both."""
    first, second = u[:, :1].roll(1, dims=2), 0.5 * u[:, 1:] + 0.2 * u[:, :1]
    return torch.cat([first, second], 1) + 0.1


def test_a_linear_periodic_problem_is_learned_to_the_last_digits() -> None:
    train = rolled(drawn(8, 2, (POINTS,), 1), move, "shift", [0.0] * 8)
    assert error(train, rolled(drawn(4, 2, (POINTS,), 2), move, "shift", [0.0] * 4)) < 1e-4


@pytest.mark.parametrize("grid", [(POINTS,), (8, 6), (4, 6, 4)])
def test_between_walls_a_source_and_a_diffusion_are_learned(grid: tuple[int, ...]) -> None:
    source = drawn(1, 1, grid, 3).double()
    axes = tuple(range(2, 2 + len(grid)))

    def diffuse(u: Tensor) -> Tensor:
        """A mean over neighbours; beyond a wall is the point next to it."""
        for axis in axes:
            padded = torch.cat([u.narrow(axis, 0, 1), u, u.narrow(axis, u.shape[axis] - 1, 1)], axis)
            size = u.shape[axis]
            u = 0.5 * u + 0.25 * (padded.narrow(axis, 0, size) + padded.narrow(axis, 2, size))
        return u + source

    train = rolled(drawn(8, 1, grid, 1), diffuse, "none", [0.0] * 8)
    assert error(train, rolled(drawn(4, 1, grid, 2), diffuse, "none", [0.0] * 4)) < 1e-4


def test_a_field_that_is_zero_stays_zero() -> None:
    train = rolled(torch.zeros(4, 1, POINTS), lambda u: u, "shift", [0.0] * 4)
    assert error(train, train) == 0


def test_the_test_set_has_no_effect_and_two_fits_are_equal() -> None:
    train = rolled(drawn(8, 2, (POINTS,), 1), move, "shift", [0.0] * 8)
    nothing = Trajectories(fields=train.fields * math.nan, conditions=train.conditions)
    fits = [fitted(train), fitted(train), fitted(train, nothing)]
    first, *others = (fit.predict(train.fields[:, 0], train.conditions) for fit in fits)
    assert all(torch.equal(first, other) for other in others)


def test_the_first_line_compares_with_the_best_baseline() -> None:
    scores = {"rollout_nrmse": 0.02, "persistence_nrmse": 0.9, "linear_map_nrmse": 0.0024}
    assert score_lines(scores) == ["rollout nRMSE 0.02, NO better than the best linear map (0.0024)"]
    scores = {"rollout_nrmse": 0.02, "nearest_nrmse": 0.5, "solver_half_nrmse": 0.04}
    assert score_lines(scores) == [
        "rollout nRMSE 0.02, 2.0x better than our solver on half the points (0.04)"
    ]
    assert score_lines({"rollout_nrmse": 0.02}) == ["rollout nRMSE 0.02"]
