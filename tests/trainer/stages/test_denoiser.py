"""The denoiser: what all models promise, and that it knows how much noise there is."""

import pytest
import torch
from torch import Tensor

from vastrun.trainer.job.config import ModelConfig
from vastrun.trainer.models.denoiser import Denoiser
from vastrun.trainer.models.operator import Domain
from vastrun.trainer.models.weights import materialise

SMALL = ModelConfig(name="latent", dim=16, depth=1, heads=2, patch=4)
GRIDS = {"1-D": (32,), "2-D": (16, 16), "3-D": (8, 4, 12)}
KINDS = {"plain": SMALL}

on_every_grid = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS.keys())
every_kind = pytest.mark.parametrize("config", KINDS.values(), ids=KINDS.keys())


def made(config: ModelConfig, grid: tuple[int, ...], *, min_level: float = 0.0) -> Denoiser:
    torch.manual_seed(0)
    return Denoiser(config, [Domain(grid=grid, channels=2, conditions=1)], context=2, min_level=min_level)


def inputs(grid: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Noisy fields, their levels, what is given and the conditions."""
    stream = torch.Generator().manual_seed(1)
    level = torch.tensor([0.02, 1.0, 20.0])
    clean, noise = (torch.randn(3, 2, *grid, generator=stream) for _ in range(2))
    given = torch.randn(3, 4, *grid, generator=stream)
    wide = level.reshape(-1, *(1,) * (1 + len(grid)))
    return clean + wide * noise, level, given, torch.randn(3, 1, generator=stream)


def trained(config: ModelConfig, grid: tuple[int, ...]) -> Denoiser:
    """After a few steps towards the first field that it is given."""
    denoiser = made(config, grid)
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=1e-2)
    noisy, level, given, conditions = inputs(grid)
    for _ in range(4):
        optimizer.zero_grad()
        (denoiser(noisy, level, given, conditions, 0) - given[:, :2]).square().mean().backward()
        optimizer.step()
    return denoiser


@every_kind
@on_every_grid
def test_a_fresh_one_built_without_memory_is_the_best_guess_of_who_knows_nothing(
    config: ModelConfig, grid: tuple[int, ...]
) -> None:
    with torch.device("meta"):
        denoiser = made(config, grid)
    torch.manual_seed(0)
    materialise(denoiser)
    at_once = made(config, grid).state_dict()
    assert all(torch.equal(value, at_once[name]) for name, value in denoiser.state_dict().items())
    noisy, level, given, conditions = inputs(grid)
    guess = noisy / (level.reshape(-1, *(1,) * (1 + len(grid))).square() + 1)
    assert torch.allclose(denoiser(noisy, level, given, conditions, 0), guess)


@every_kind
@on_every_grid
def test_every_parameter_learns_and_the_answer_follows_all_that_is_told(
    config: ModelConfig, grid: tuple[int, ...]
) -> None:
    denoiser = trained(config, grid)
    assert [name for name, p in denoiser.named_parameters() if p.grad is None or not p.grad.any()] == []
    noisy, level, given, conditions = inputs(grid)
    answer = denoiser(noisy, level, given, conditions, 0)
    assert answer.shape == noisy.shape
    for other in (
        denoiser(noisy, level, given + 1, conditions, 0),
        denoiser(noisy, level, given, conditions + 1, 0),
    ):
        assert not torch.allclose(answer, other, atol=1e-3)


def test_the_network_itself_knows_the_level_of_noise() -> None:
    """Not only the factors around it."""
    denoiser = trained(SMALL, (32,))
    noisy, level, given, conditions = inputs((32,))

    def network(level: Tensor) -> Tensor:
        """Its part of the answer to one and the same input."""
        wide = level[:, None, None]
        seen = noisy * (wide.square() + 1).sqrt()
        answer = denoiser(seen, level, given, conditions, 0)
        return (answer - seen / (wide.square() + 1)) * (wide.square() + 1).sqrt() / wide

    assert not torch.allclose(network(level), network(level.flip(0)), atol=1e-3)


def test_at_its_lowest_level_a_consistency_model_returns_its_input_whatever_it_learned() -> None:
    denoiser = made(SMALL, (32,), min_level=0.02)
    torch.nn.init.normal_(denoiser.decoders[0].content.weight)
    noisy, _, given, conditions = inputs((32,))
    at_lowest, above = (
        denoiser(noisy, torch.full((3,), level), given, conditions, 0) for level in (0.02, 0.1)
    )
    assert torch.allclose(at_lowest, noisy, atol=1e-6)
    assert not torch.allclose(above, noisy, atol=1e-2)


@on_every_grid
def test_half_precision_changes_an_answer_by_little(grid: tuple[int, ...]) -> None:
    denoiser = trained(SMALL, grid)
    with torch.autocast("cpu", torch.bfloat16):
        half = denoiser(*inputs(grid), 0)
    assert half.dtype == torch.float32
    assert 0 < (half - denoiser(*inputs(grid), 0)).abs().max() < 0.1
