"""Sobol points are those of the published sequence, and a shift keeps them evenly spread."""

from collections import Counter
from itertools import islice

import pytest

from vastrun.launcher.config.points import MAX_DIMENSIONS, sobol, uniform


def test_the_first_points_in_three_dimensions_are_the_published_ones() -> None:
    assert list(islice(sobol(3, None), 4)) == [
        (0.0, 0.0, 0.0),
        (0.5, 0.5, 0.5),
        (0.75, 0.25, 0.25),
        (0.25, 0.75, 0.75),
    ]


@pytest.mark.torch
def test_in_every_dimension_the_points_are_those_of_torch() -> None:
    import torch

    ours = torch.tensor(list(islice(sobol(MAX_DIMENSIONS, None), 256)), dtype=torch.float64)
    theirs = torch.quasirandom.SobolEngine(MAX_DIMENSIONS).draw(256, dtype=torch.float64)
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("seed", [0, 1, 12345])
def test_shifted_points_still_fill_each_half_quarter_and_eighth_alike(seed: int) -> None:
    points = list(islice(sobol(4, seed), 64))
    for axis in range(4):
        assert set(Counter(int(point[axis] * 8) for point in points).values()) == {8}


def test_a_seed_gives_the_same_points_and_another_one_others() -> None:
    for draw in (sobol, uniform):
        first, again, other = (list(islice(draw(2, seed), 8)) for seed in (3, 3, 4))
        assert first == again != other
        assert all(0 <= value < 1 for point in first for value in point)
