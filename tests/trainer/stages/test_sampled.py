"""From noise to fields: against distributions whose denoiser is known exactly."""

from itertools import pairwise

import torch
from torch import Tensor

from vastrun.trainer.stages import sampled
from vastrun.trainer.stages.losses import adjacent_levels

MEAN, DEVIATION = 0.5, 0.8


class Exact:
    """The best denoiser of fields whose values are normal, and how often it was asked."""

    def __init__(self, deviation: float) -> None:
        self.variance = deviation**2
        self.calls = 0

    def __call__(self, x: Tensor, level: Tensor) -> Tensor:
        self.calls += 1
        noise = level[:, None, None].square()
        return (self.variance * x + noise * MEAN) / (self.variance + noise)


def noise(batch: int = 4) -> Tensor:
    return torch.randn(batch, 1, 256, generator=torch.Generator().manual_seed(3))


def test_draws_have_the_distribution_of_what_the_denoiser_knows() -> None:
    drawn = sampled.euler_sample(Exact(DEVIATION), noise(64), 60)
    assert abs(drawn.mean() - MEAN) < 0.05
    assert abs(drawn.std() - DEVIATION) < 0.05


def test_a_field_that_is_certain_is_drawn_whatever_the_noise_is_with_so_many_calls() -> None:
    for steps in (1, 2, 3, 8):
        denoise = Exact(0.0)
        drawn = sampled.euler_sample(denoise, noise(), steps)
        assert torch.allclose(drawn, torch.full_like(drawn, MEAN), atol=1e-4)
        assert denoise.calls == steps


def test_steps_of_heun_are_of_second_order() -> None:
    """Against the flow itself: a normal value keeps its place among all, in deviations."""
    x, ends = MEAN + 2.0 * noise(), (2.0, 0.5)
    exact = MEAN + (x - MEAN) * ((DEVIATION**2 + ends[1] ** 2) / (DEVIATION**2 + ends[0] ** 2)) ** 0.5
    errors = []
    for steps in (4, 8):
        levels, there = torch.linspace(*ends, steps + 1), x
        for high, low in pairwise(levels):
            there = sampled.heun_step(Exact(DEVIATION), there, high.expand(4), low.expand(4))
        errors.append((there - exact).abs().max().item())
    assert errors[0] > 3.5 * errors[1]


def test_a_consistency_model_is_asked_once_a_step() -> None:
    for steps in (1, 2):
        denoise = Exact(0.0)
        drawn = sampled.consistency_sample(denoise, torch.stack([noise()] * steps))
        assert torch.allclose(drawn, torch.full_like(drawn, MEAN), atol=1e-5)
        assert denoise.calls == steps


def test_levels_that_are_computed_on_the_device_are_those_of_the_ladder_to_the_last_digit() -> None:
    for steps in (1, 2, 18, 40):
        assert torch.equal(
            sampled.noise_level_at(torch.arange(steps), steps), torch.tensor(sampled.noise_levels(steps))
        )


def test_levels_go_down_from_the_highest_to_the_lowest_and_neighbours_are_neighbours() -> None:
    levels = sampled.noise_levels(18)
    assert levels == sorted(levels, reverse=True)
    assert abs(levels[0] - sampled.MAX_LEVEL) < 1e-9
    assert abs(levels[-1] - sampled.MIN_LEVEL) < 1e-9
    normal = torch.randn(20_000, generator=torch.Generator().manual_seed(0))
    high, low = adjacent_levels(torch.cat([normal, torch.tensor([-9.0, 9.0])]))
    pairs = sorted(set(zip(high.tolist(), low.tolist(), strict=True)), reverse=True)
    expected = torch.tensor(levels)
    assert torch.allclose(torch.tensor(pairs), torch.stack([expected[:-1], expected[1:]], dim=1))
    counts = high.unique(return_counts=True)[1]
    assert counts.min() > 0.8 * counts.max()


def test_noise_is_trained_at_up_to_where_draws_begin() -> None:
    level = sampled.training_level(torch.randn(20_000, generator=torch.Generator().manual_seed(0)))
    assert (level > sampled.MAX_LEVEL).float().mean() > 0.01
    assert (level < 2 * sampled.MIN_LEVEL).float().mean() > 0.005
