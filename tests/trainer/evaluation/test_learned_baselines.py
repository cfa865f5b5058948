"""Learned baselines: exact where the problem is linear, fitted to the training set alone, repeatable."""

import math

import pytest
import torch
from torch import Tensor

from vastrun.contract.scores import score_lines
from vastrun.trainer.data.trajectories import Trajectories, TrajectoryTask
from vastrun.trainer.evaluation.learned_baselines import (
    MAX_SAMPLES,
    KernelRidges,
    LearnedBaseline,
    fit_baseline,
)
from vastrun.trainer.sampling.windows import Symmetry

pytestmark = pytest.mark.torch

POINTS, FRAMES = 16, 6
CPU = torch.device("cpu")


def rolled(first: Tensor, step: object, symmetry: Symmetry, told: list[float]) -> Trajectories:
    """Trajectories whose next frame is `step` of the present one."""
    frames = [first.double()]
    for _ in range(FRAMES - 1):
        frames.append(step(frames[-1]))  # type: ignore[operator]
    conditions = torch.tensor([[value, -1.0] for value in told])
    return Trajectories(fields=torch.stack(frames, 1).float(), conditions=conditions, symmetry=symmetry)


def drawn(count: int, channels: int, grid: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(count, channels, *grid, generator=torch.Generator().manual_seed(seed))


def fitted(train: Trajectories, test: Trajectories | None = None) -> LearnedBaseline:
    parameters = train.conditions.unique(dim=0)
    return fit_baseline(TrajectoryTask(train, test or train), parameters, CPU, lambda: None)


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


def steady(count: int, seed: int) -> Trajectories:
    """Answers that depend smoothly, but not linearly, on a coefficient of two numbers, and turn with it."""
    x, y = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij")
    one, other = drawn(count, 1, (2,), seed).tanh()[:, 0].T[:, :, None, None]
    coefficient = one * x + other * y
    answer = 1 + coefficient.square()
    fields = torch.stack([coefficient, answer], 1)[:, :, None]
    return Trajectories(fields=fields, conditions=torch.zeros(count, 1), symmetry="square", steady=True)


def test_kernel_ridge_learns_what_no_linear_map_does() -> None:
    train, test = steady(64, 1), steady(32, 2)
    found = fitted(train).predict(test.fields[:, 0], test.conditions)
    truth = test.fields[:, 1].double()
    mean = train.fields[:, 1].double().mean(0)
    assert (found - truth).norm() < 0.05 * (mean - truth).norm()
    again = fitted(train).predict(test.fields[:, 0], test.conditions)
    assert torch.equal(found, again)


def samples_of(baseline: LearnedBaseline) -> int:
    assert isinstance(baseline, KernelRidges)
    [fit] = baseline.fits
    return len(fit.features)


def test_kernel_ridge_uses_the_images_of_a_square() -> None:
    assert samples_of(fitted(steady(32, 1))) == 8 * 32


@pytest.mark.slow
def test_kernel_ridge_uses_a_bounded_number_of_samples() -> None:
    assert samples_of(fitted(steady(MAX_SAMPLES + 100, 1))) == MAX_SAMPLES


def test_the_first_line_compares_with_the_best_baseline() -> None:
    scores = {"rollout_nrmse": 0.02, "persistence_nrmse": 0.9, "linear_map_nrmse": 0.0024}
    assert score_lines(scores) == ["rollout nRMSE 0.02, NO better than the best linear map (0.0024)"]
    scores = {"rollout_nrmse": 0.02, "nearest_nrmse": 0.5, "kernel_ridge_nrmse": 0.04}
    assert score_lines(scores) == ["rollout nRMSE 0.02, 2.0x better than kernel ridge (0.04)"]
