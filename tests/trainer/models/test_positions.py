"""Positions between walls and in periodic domains, on a ramp from one end to the other."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from vastrun.trainer import data, models
from vastrun.trainer.engine.session_builder import domain_of
from vastrun.trainer.job.config import MODELS, ModelConfig
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig
from vastrun.trainer.models.latent_operator import PatchEncoder, position_features
from vastrun.trainer.models.operator import Domain, grid_points
from vastrun.trainer.workload.fakes import FakeTrajectories

pytestmark = pytest.mark.torch

PERIODIC = {
    "advection",
    "burgers",
    "compressible_1d",
    "compressible_2d",
    "compressible_3d",
    "reaction_diffusion",
}
WALLS = {"darcy", "diffusion_reaction", "diffusion_sorption", "incompressible", "shallow_water"}
CONFIG = ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4, modes=4)
NEAR_WALLS, INSIDE = torch.tensor([0.005, 0.995]), torch.linspace(0.1, 0.9, 81)


def fit_of_a_ramp(axes: int, *, periodic: bool) -> tuple[float, float]:
    """Largest errors near the walls and inside of u = x along the last axis, fitted at 16 tokens an axis."""

    def features(points: Tensor) -> Tensor:
        codes = position_features(points, periodic=periodic).double()
        return torch.cat([codes, torch.ones(len(codes), 1)], dim=1)

    centres = grid_points((16,) * axes).flatten(0, -2)
    weights = torch.linalg.lstsq(features(centres), centres[:, -1:].double(), driver="gelsd").solution

    def error(x: Tensor) -> float:
        points = torch.cat([torch.full((len(x), axes - 1), 0.3), x[:, None]], dim=1)
        return float((features(points) @ weights - x[:, None]).abs().max())

    return error(NEAR_WALLS), error(INSIDE)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_a_ramp_between_walls_does_not_wrap_around(axes: int) -> None:
    near_walls, inside = fit_of_a_ramp(axes, periodic=False)
    assert near_walls < 2e-3
    assert inside < 1e-3


def test_periodic_codes_cannot_hold_a_ramp() -> None:
    near_walls, _ = fit_of_a_ramp(1, periodic=True)
    assert near_walls > 0.3


def test_each_task_is_periodic_or_has_walls() -> None:
    assert set(PARAMETERS) == PERIODIC | WALLS


@pytest.mark.parametrize("task", sorted(PARAMETERS))
def test_the_ends_of_a_domain_are_neighbours_only_where_it_is_periodic(task: str) -> None:
    config = DataConfig(task=task, points=32, frames=3)
    sizes = data.data_sizes(config)
    fields, conditions = torch.zeros(1, *sizes.frame_shape), torch.zeros(1, sizes.conditions)
    domain = domain_of(
        FakeTrajectories(fields=fields, conditions=conditions, symmetry=sizes.symmetry, steady=sizes.steady)
    )
    positions = PatchEncoder(CONFIG, domain).position.reshape(*[8] * len(domain.grid), -1)
    for axis in range(len(domain.grid)):
        first, second, last = (positions.select(axis, place) for place in (0, 1, -1))
        beside, across = (float((first - other).norm(dim=-1).max()) for other in (second, last))
        if task in WALLS:
            assert across > 1.3 * beside
        else:
            assert across == pytest.approx(beside, rel=1e-4)


def test_positions_of_periodic_domains_are_whole_waves() -> None:
    found = PatchEncoder(CONFIG, Domain(grid=(16, 8), conditions=1)).position
    x, y = grid_points((4, 2)).flatten(0, -2).T
    waves = [torch.stack([(2 * math.pi * at * k) for k in range(1, 5)], dim=1) for at in (x, y)]
    expected = torch.cat([torch.cat([angles.sin(), angles.cos()], dim=1) for angles in waves], dim=1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_learns_a_ramp_up_to_the_walls(name: str) -> None:
    torch.manual_seed(0)
    # The first point is at 0.005, the last one at 0.995.
    domain = Domain(grid=(100,), conditions=1, periodic=False, steady=True)
    operator = models.make(replace(CONFIG, name=name), [domain])
    ramp = grid_points((100,)).T[None]
    optimizer = torch.optim.Adam(operator.parameters(), lr=1e-2)
    for _ in range(150):
        error = (operator(torch.zeros(1, 1, 100), torch.zeros(1, 1)) - ramp)[0, 0]
        optimizer.zero_grad()
        error.square().mean().backward()
        optimizer.step()
    assert error[[0, -1]].abs().max() < 0.05
    assert error.abs().max() < 0.05
