"""Measures of squares and cubes: the rim, the mean, waves by their length; conserved densities."""

import math

import numpy as np
import pytest
import torch

from vastrun.trainer.data import gas
from vastrun.trainer.evaluation.comparison import Performance
from vastrun.trainer.evaluation.metrics import MEASURES, FieldMetrics
from vastrun.trainer.evaluation.rollouts import CONSERVED, Rollouts
from vastrun.trainer.evaluation.scores import scores_of
from vastrun.trainer.job.data_config import PARAMETERS

POINTS = 32


def measured(field: torch.Tensor) -> dict[str, float]:
    gauge = FieldMetrics(tuple(field.shape), torch.device("cpu"))
    return {
        name: value.item() for name, value in zip(MEASURES, gauge.measure(field[None, None]), strict=True)
    }


@pytest.mark.parametrize(
    ("across", "down", "band", "rings"),
    [
        (2, 2, "low", 4),
        (3, 3, "mid", 8),
        (3, -4, "mid", 8),
        (0, 5, "mid", 8),
        (5, 0, "mid", 8),
        (9, 9, "high", None),
    ],
)
def test_wave_counts_in_the_band_of_its_length(across: int, down: int, band: str, rings: int | None) -> None:
    x, y = torch.meshgrid(torch.arange(POINTS), torch.arange(POINTS), indexing="ij")
    found = measured(torch.cos(2 * math.pi * (across * x + down * y) / POINTS))
    others = {"low", "mid", "high"} - {band}
    assert all(found[other] == pytest.approx(0, abs=1e-12) for other in others)
    if rings:  # half of the amplitude: the other half is at the opposite wavenumber
        assert found[band] == pytest.approx(0.5**2 / rings)
    assert found["square"] == pytest.approx(0.5)


def test_the_edge_of_a_square_is_its_rim() -> None:
    inside = torch.zeros(6, 6)
    inside[1:-1, 1:-1] = -3.0
    assert measured(inside)["edge"] == 0
    found = measured(inside + 1)
    assert found["edge"] == 1
    assert found["highest"] == 2
    assert found["mean"] == pytest.approx((20 * 1 - 16 * 2) / 36)
    assert math.isnan(found["high"])  # six points have no waves so short


@pytest.mark.parametrize(
    ("wavenumbers", "band", "rings"),
    [((2, 2, 2), "low", 4), ((2, -2, 3), "mid", 8), ((0, 0, 5), "mid", 8), ((5, 0, 0), "mid", 8)],
)
def test_a_wave_in_a_cube_counts_once_in_the_band_of_its_length(
    wavenumbers: tuple[int, ...], band: str, rings: int
) -> None:
    grid = (12, 14, 16)
    x = torch.meshgrid(*(torch.arange(points) / points for points in grid), indexing="ij")
    phase = sum(number * axis for number, axis in zip(wavenumbers, x, strict=True))
    found = measured(torch.cos(2 * math.pi * phase))
    assert found[band] == pytest.approx(0.5**2 / rings)
    assert found["square"] == pytest.approx(0.5)
    assert found[{"low": "mid", "mid": "low"}[band]] == pytest.approx(0, abs=1e-12)


def test_the_edge_of_a_cube_are_its_six_faces() -> None:
    inside = torch.zeros(5, 6, 7)
    inside[1:-1, 1:-1, 1:-1] = -3.0
    assert measured(inside)["edge"] == 0
    for axis in range(3):
        for place in (0, -1):
            face = torch.zeros(5, 6, 7)
            face.select(axis, place).fill_(1.0)
            points = face.sum().item()
            assert measured(face)["edge"] == pytest.approx(points / (5 * 6 * 7 - 3 * 4 * 5))


def test_a_band_without_wavenumbers_has_no_score() -> None:
    errors = FieldMetrics((6, 6), torch.device("cpu")).measure(torch.ones(2, 1, 6, 6))
    rollouts = Rollouts(
        sizes=torch.ones(2, 1, 1),
        errors={"rollout": errors[:, :, None]},
        spectra=torch.zeros(3, 1, 4),
        examples=(),
        ms={},
    )
    found = scores_of(rollouts, torch.arange(2))["rollout"]
    assert math.isnan(found.spectrum_high)
    assert found.numbers()["spectrum_high"] is None
    assert (found.spectrum_low, found.diverged) == (pytest.approx(0.5), 0)
    cost = Performance(scores=found, calls=1, ms=2.0)
    assert "wavenumbers 0.5 0 -, 1 network calls" in str(cost)


def test_every_compressible_flow_is_compared_by_the_densities_that_its_solver_conserves() -> None:
    tasks = {task for task in PARAMETERS if task.startswith("compressible_")}
    assert CONSERVED.keys() == tasks
    for axes in (1, 2, 3):
        state = gas.draw(2, axes, np.random.default_rng(axes))(8, 0.5)
        found = CONSERVED[f"compressible_{axes}d"](torch.from_numpy(state))
        np.testing.assert_allclose(found, gas.conserved(state), rtol=1e-14)
