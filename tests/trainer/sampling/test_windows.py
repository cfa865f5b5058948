"""The sampler: a pure function of the seed and the step, the same for any number of ranks."""

from dataclasses import replace

import numpy as np
import pytest

from vastrun.epochs import batch_of
from vastrun.trainer.errors import DataError
from vastrun.trainer.sampling.windows import (
    BatchIndices,
    SamplePlan,
    WindowSpace,
    draw_indices,
    image_count,
    image_points,
)

DRAWN = ("trajectory", "frames", "image", "noise", "level")
SPACE = WindowSpace(trajectories=20, frames=9, grid=(16,), symmetry="shift", unroll=3)


def drawn(step: int, *, seed: int = 1) -> BatchIndices:
    return draw_indices(seed, step, batch=8, noise=0.1, space=SPACE)


def same(a: BatchIndices, b: BatchIndices) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in DRAWN)


def test_a_step_has_the_same_batch_whatever_was_drawn_before() -> None:
    late = drawn(5)
    for step in range(5):
        drawn(step)
    assert same(drawn(5), late)
    assert not same(drawn(5), drawn(6))
    assert not same(drawn(5), drawn(5, seed=2))


@pytest.mark.parametrize("points", [16, 1300, 5000], ids=["noise of all at once", "of three", "of each"])
@pytest.mark.parametrize(("world_size", "accumulation"), [(1, 1), (1, 4), (2, 2), (4, 1)])
def test_micro_batches_add_up_to_the_global_batch(world_size: int, accumulation: int, points: int) -> None:
    space = replace(SPACE, grid=(points,))
    settings = {"seed": 1, "batch": 8, "noise": 0.1, "space": space, "remainder": "drop"}
    sample_plans = [
        SamplePlan(**settings, rank=rank, world_size=world_size, accumulation=accumulation)  # type: ignore[arg-type]
        for rank in range(world_size)
    ]
    parts = [
        sample_plan.micro_batch_of(5, number)
        for sample_plan in sample_plans
        for number in range(accumulation)
    ]
    for name in DRAWN:
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(joined, getattr(sample_plans[0].batch_of(5), name))
    assert len({noise.tobytes() for noise in sample_plans[0].batch_of(5).noise}) == 8
    dropped = batch_of(1, 5, batch=8, total=20, remainder="drop")
    np.testing.assert_array_equal(sample_plans[0].batch_of(5).trajectory, dropped)


def test_a_step_reads_the_same_whatever_was_read_before_it() -> None:
    sample_plan = SamplePlan(seed=1, batch=8, noise=0.1, space=SPACE, rank=0, world_size=1, accumulation=1)
    for step in (0, 1, 40, 39, 2, 15, 16, 100):
        for name in DRAWN:
            found, expected = (getattr(batch, name) for batch in (sample_plan.batch_of(step), drawn(step)))
            np.testing.assert_array_equal(found, expected)


def test_every_trajectory_is_seen_once_before_one_is_seen_twice() -> None:
    sample_plan = np.concatenate([drawn(step).trajectory for step in range(5)])
    for epoch in sample_plan.reshape(2, 20):
        assert sorted(epoch) == list(range(20))
    assert not np.array_equal(*sample_plan.reshape(2, 20))


def test_windows_lie_inside_their_trajectory() -> None:
    frames = np.concatenate([drawn(step).frames for step in range(50)])
    assert frames.shape == (400, 4)
    assert (np.diff(frames, axis=1) == 1).all()
    assert set(frames[:, 0]) == set(range(6))


def test_every_image_that_the_symmetry_gives_is_drawn() -> None:
    images = np.concatenate([drawn(step).image for step in range(50)])
    assert set(images) == set(range(16))
    plain = draw_indices(1, 0, batch=8, noise=0.1, space=replace(SPACE, symmetry="none"))
    assert set(plain.image) == {0}


@pytest.mark.parametrize("grid", [(7,), (4, 5), (3, 4, 5)])
def test_the_images_of_a_periodic_domain_are_its_shifts_along_all_axes(grid: tuple[int, ...]) -> None:
    field = np.arange(np.prod(grid)).reshape(grid)
    count = image_count("shift", grid)
    points = image_points("shift", grid, np.arange(count))
    images = [field.ravel()[each].reshape(grid) for each in points]
    shifts = list(np.ndindex(*grid))
    assert len(images) == len(shifts) == field.size
    for image, shift in zip(images, shifts, strict=True):
        np.testing.assert_array_equal(image, np.roll(field, shift, tuple(range(len(grid)))))


@pytest.mark.parametrize("grid", [(16,), (8, 16), (8, 8, 8)])
def test_a_grid_that_cannot_be_turned_is_refused_and_told_what_it_may_have(grid: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match=r"two equal axes for the symmetry square, got .*shift and none"):
        replace(SPACE, grid=grid, symmetry="square")
