"""Modes of a field: another grid by the modes that both have, and a linear map of each mode."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from vastrun.trainer import data
from vastrun.trainer.engine.session_builder import domain_of, fit
from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.job.data_config import PARAMETERS, DataConfig
from vastrun.trainer.models.linear_map import ModeMap, Modes
from vastrun.trainer.models.modes import field_of, low_modes, resampling
from vastrun.trainer.models.operator import Domain, grid_points
from vastrun.trainer.models.spectral_operator import SpectralOperator

GRIDS = [((48,), (16,)), ((24, 36), (12, 16)), ((12, 14, 16), (8, 9, 16))]
every_grid = pytest.mark.parametrize(("fine", "coarse"), GRIDS)
on_every_domain = pytest.mark.parametrize("periodic", [True, False], ids=["periodic", "walls"])


def smooth(grid: tuple[int, ...], *, periodic: bool) -> Tensor:
    """A field of a few slow modes at the centres of a grid's cells: (1, *X, 2)."""
    angle = (2 if periodic else 1) * math.pi * grid_points(grid)
    first = torch.cos(2 * angle).prod(dim=-1)
    second = 0.3 + (torch.sin(angle) if periodic else torch.cos(3 * angle)).sum(dim=-1)
    return torch.stack([first, second], dim=-1)[None]


@every_grid
def test_a_smooth_periodic_field_is_the_same_on_another_grid_and_back(
    fine: tuple[int, ...], coarse: tuple[int, ...]
) -> None:
    down, up = (resampling(*grids, periodic=True) for grids in ((fine, coarse), (coarse, fine)))
    here, there = (smooth(grid, periodic=True) for grid in (fine, coarse))
    assert torch.allclose(down(here), there, atol=1e-5)
    assert torch.allclose(up(there), here, atol=1e-5)


BETWEEN_WALLS: dict[str, tuple[Callable[[Tensor], Tensor], float]] = {
    "a ramp": (lambda place: 2 * place - 3, 1e-5),
    "slopes at walls": (lambda place: torch.exp(-2 * place), 5e-5),
    "no slopes": (lambda place: torch.cos(3 * math.pi * place), 5e-3),
}


@pytest.mark.parametrize("field", BETWEEN_WALLS)
def test_a_smooth_field_between_walls_is_nearly_the_same_on_another_grid_and_back(field: str) -> None:
    """Cosines alone are off by 0.01 where there are slopes."""
    change, within = BETWEEN_WALLS[field]
    fine, coarse = (96, 64), (32, 32)
    down, up = (resampling(*grids, periodic=False) for grids in ((fine, coarse), (coarse, fine)))
    here, there = (change(grid_points(grid)).sum(dim=-1)[None, ..., None] for grid in (fine, coarse))
    assert torch.allclose(down(here), there, atol=within)
    assert torch.allclose(up(there), here, atol=within)


@pytest.mark.parametrize("periodic", [True, False])
def test_the_same_grid_changes_nothing(periodic: bool) -> None:
    u = torch.randn(2, 16, 1)
    assert torch.equal(resampling((16,), (16,), periodic=periodic)(u), u)


def test_waves_that_the_coarse_grid_lacks_are_not_seen_on_it_as_others() -> None:
    down = resampling((48,), (16,), periodic=True)
    assert down(torch.cos(2 * math.pi * 18 * grid_points((48,)))[None]).abs().max() < 1e-5


@pytest.mark.parametrize(("points", "other"), [(256, 32), (32, 256), (36, 16), (16, 36), (64, 4), (4, 64)])
def test_nothing_becomes_much_larger_between_walls(points: int, other: int) -> None:
    u = torch.randn(200, points, 1, generator=torch.Generator().manual_seed(0))
    found = resampling((points,), (other,), periodic=False)(u)
    assert found.square().mean(dim=1).sqrt().max() < 3 * u.square().mean(dim=1).sqrt().max()


@every_grid
def test_low_frequencies_become_the_original_field(fine: tuple[int, ...], coarse: tuple[int, ...]) -> None:
    u = smooth(fine, periodic=True)
    assert torch.allclose(field_of(low_modes(u, min(coarse) // 2), fine), u, atol=1e-5)


def mode_map(*, periodic: bool, grid: tuple[int, ...] = (32,), channels: int = 1) -> ModeMap:
    domain = Domain(grid=grid, channels=channels, conditions=1, periodic=periodic)
    return ModeMap(domain, 1)


@every_grid
def test_what_is_moved_comes_out_moved_where_the_field_is_periodic(
    fine: tuple[int, ...], coarse: tuple[int, ...]
) -> None:
    mapped = mode_map(periodic=True, grid=fine, channels=2)
    torch.nn.init.normal_(mapped.matrices.weight)
    u, features = torch.randn(2, *fine, 2), torch.randn(2, 1)
    axes, shifts = tuple(range(1, 1 + len(fine))), (3, 7, 2)[: len(fine)]
    moved, still = (mapped(each, features, features) for each in (u.roll(shifts, axes), u))
    assert torch.allclose(moved, still.roll(shifts, axes), atol=1e-3)


@on_every_domain
def test_it_is_linear_in_the_field_and_in_full_precision(periodic: bool) -> None:
    mapped = mode_map(periodic=periodic)
    torch.nn.init.normal_(mapped.matrices.weight)
    u, features = torch.randn(2, 32, 1), torch.randn(2, 1)
    assert torch.allclose(mapped(3 * u, features, features), 3 * mapped(u, features, features), atol=1e-3)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(mapped(u, features, features), mapped(u.float(), features, features))
    assert mapped(u, features, features).dtype == torch.float32


BEYOND: dict[str, tuple[tuple[int, ...], int, bool]] = {
    "a line": ((300,), 1, True),
    "walls, two channels": ((72, 72), 2, False),
    "a cube": ((36, 36, 36), 1, True),
}
"""Grids with more frequencies than have learned matrices, channels, and whether they are periodic."""


def evolved(grid: tuple[int, ...], channels: int, *, periodic: bool, frames: int, seed: int) -> Tensor:
    """Random fields of the full grid, which diffuse and feed each other: (2, T, K, *X)."""
    modes = Modes(grid=grid, periodic=periodic)
    axes = [
        torch.fft.fftfreq(points, 1 / points) if periodic else torch.arange(points) / 2 for points in grid
    ]
    axes[-1] = torch.arange(grid[-1] // 2 + 1.0) if periodic else axes[-1]
    squares = torch.stack(torch.meshgrid(*axes, indexing="ij")).square().sum(dim=0).flatten().double()
    decay = torch.exp(-squares / squares.max() * torch.arange(1, channels + 1)[:, None])
    first = torch.randn(2, channels, *grid, generator=torch.Generator().manual_seed(seed))
    values = [modes.transform(first.double())]
    for _ in range(frames - 1):
        values.append(decay * (values[-1] + 0.1 * values[-1].flip(1)) / 1.1)
    return torch.stack([modes.inverse(each) for each in values], dim=1)


@pytest.mark.parametrize("name", BEYOND)
def test_a_random_field_of_the_full_grid_evolves_as_the_exact_solution_does(name: str) -> None:
    grid, channels, periodic = BEYOND[name]
    config = ModelConfig(name="spectral", dim=8, depth=1, modes=4, points=8)
    operator = SpectralOperator(
        config, [Domain(grid=grid, channels=channels, conditions=1, periodic=periodic)]
    )
    data = [evolved(grid, channels, periodic=periodic, frames=4, seed=seed) for seed in range(2)]
    operator.fit(torch.zeros(1, 1), [iter(data)])
    truth = evolved(grid, channels, periodic=periodic, frames=21, seed=9).float()
    u = truth[:, 0]
    for target in truth[:, 1:].unbind(1):
        u = operator(u, torch.zeros(2, 1))
        assert (u - target).norm() < 0.01 * target.norm()


def test_what_grows_in_the_data_grows_in_no_mode_without_learned_matrices_and_no_rollout_diverges() -> None:
    config = ModelConfig(name="spectral", dim=8, depth=1, modes=4, points=8)
    operator = SpectralOperator(config, [Domain(grid=(300,), conditions=1)])
    u = torch.randn(4, 1, 300, generator=torch.Generator().manual_seed(0)).double()
    operator.fit(torch.zeros(1, 1), [iter([torch.stack([u, 1.1 * u], dim=1)])])
    after = operator(u.float(), torch.zeros(4, 1))
    spectra = [torch.fft.rfft(each)[..., 128:].abs() for each in (u.float(), after)]
    assert torch.allclose(*spectra, rtol=1e-3, atol=1e-3)
    for _ in range(200):
        after = operator(after, torch.zeros(4, 1))
    assert after.abs().max() < 3 * u.abs().max()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PARAMETERS if DataConfig(task=name).axes == 1])
def test_after_500_frames_256_rollouts_are_finite_whatever_was_learned(name: str, tmp_path: Path) -> None:
    settings = DataConfig(task=name, train=32, test=256, frames=6)
    data.generate(settings, tmp_path)
    task = data.make_task(settings, tmp_path)
    config = ModelConfig(name="spectral", dim=8, depth=1, modes=8)
    operator = SpectralOperator(config, [domain_of(task.train)])
    operator.scale(0).set(*task.train.moments())
    fit(task, operator)
    for weight in operator.parameters():
        torch.nn.init.normal_(weight)
    rows = torch.arange(256) * len(task.test) // 256  # of all parameters
    u, conditions = task.test.fields[rows, 0], task.test.conditions[rows]
    with torch.no_grad():
        for _ in range(500):
            u = operator(u, conditions)
    assert len(u) == 256 and u.abs().max() < 3 * task.test.fields.abs().max()


def test_a_mode_that_the_data_remove_has_a_finite_gradient() -> None:
    mapped = mode_map(periodic=False)
    torch.nn.init.constant_(mapped.matrices.bias, -1.0)
    mapped(torch.randn(2, 32, 1), torch.zeros(2, 1), torch.zeros(2, 1)).square().sum().backward()
    assert mapped.matrices.bias.grad is not None and mapped.matrices.bias.grad.isfinite().all()
