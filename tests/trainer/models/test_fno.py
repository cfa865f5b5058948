"""The Fourier neural operator: what a spectral convolution lets through."""

import math

import pytest
import torch
from torch import Tensor

from vastrun.trainer.models.fno import SpectralConv

GRIDS = [(32,), (16, 24), (12, 16, 10)]


def identity(grid: tuple[int, ...], modes: int) -> SpectralConv:
    """Lets the lowest frequencies of one channel through as they are."""
    conv = SpectralConv(1, modes, grid)
    torch.nn.init.zeros_(conv.weight)
    torch.nn.init.ones_(conv.weight[..., 0])
    return conv


def wave(grid: tuple[int, ...], *cycles: int) -> Tensor:
    """(1, *X, 1): a plane wave with so many cycles along each axis."""
    axes = [torch.arange(points) / points * count for points, count in zip(grid, cycles, strict=True)]
    return torch.cos(0.3 + 2 * math.pi * sum(torch.meshgrid(*axes, indexing="ij")))[None, ..., None]


@pytest.mark.parametrize(
    ("grid", "passes", "stopped"),
    [
        ((32,), [(0,), (4,)], [(5,), (9,)]),
        ((16, 24), [(0, 0), (4, 4), (-4, 4), (-5, 1)], [(5, 4), (-6, 1), (0, 5)]),
        ((12, 12, 14), [(0, 0, 0), (4, -5, 4), (-4, 3, 1)], [(5, 0, 1), (1, -6, 1), (0, 0, 5)]),
    ],
)
def test_low_frequencies_pass_and_high_ones_do_not(
    grid: tuple[int, ...], passes: list[tuple[int, ...]], stopped: list[tuple[int, ...]]
) -> None:
    conv = identity(grid, modes=5)
    for cycles in passes:
        assert torch.allclose(conv(wave(grid, *cycles)), wave(grid, *cycles), atol=1e-5), cycles
    for cycles in stopped:
        assert conv(wave(grid, *cycles)).abs().max() < 1e-5, cycles


@pytest.mark.parametrize("grid", GRIDS)
def test_a_field_that_is_moved_comes_out_moved(grid: tuple[int, ...]) -> None:
    conv = SpectralConv(3, 5, grid)
    x = torch.randn(2, *grid, 3)
    axes = tuple(range(1, 1 + len(grid)))
    shifts = (3, 7, 2)[: len(grid)]
    assert conv(x).shape == x.shape
    assert torch.allclose(conv(x.roll(shifts, axes)), conv(x).roll(shifts, axes), atol=1e-5)


@pytest.mark.parametrize("grid", GRIDS)
def test_the_same_weights_mean_the_same_on_a_finer_grid(grid: tuple[int, ...]) -> None:
    finer = tuple(2 * points for points in grid)
    coarse, fine = SpectralConv(1, 5, grid), SpectralConv(1, 5, finer)
    fine.load_state_dict(coarse.state_dict())
    every_other = (slice(None), *(slice(None, None, 2) for _ in grid))
    cycles = (3, 2, 1)[: len(grid)]
    assert torch.allclose(fine(wave(finer, *cycles))[every_other], coarse(wave(grid, *cycles)), atol=1e-5)


def test_weights_are_real_and_computed_with_in_full_precision() -> None:
    conv = SpectralConv(2, 5, (32,))
    assert [p.dtype for p in conv.parameters()] == [torch.float32]
    x = torch.randn(2, 32, 2).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(conv(x), conv(x.float()))
