"""The sampler: a pure function of the seed and the step, the same for any number of ranks."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from trainer.sampling.windows import Picks, Space, picks

SPACE = Space(trajectories=20, frames=9, points=16, unroll=3)


def drawn(step: int, *, seed: int = 1) -> Picks:
    return picks(seed, step, batch=8, noise=0.1, space=SPACE)


def same(a: Picks, b: Picks) -> bool:
    return all(np.array_equal(getattr(a, field.name), getattr(b, field.name)) for field in fields(Picks))


def test_a_step_has_the_same_batch_whatever_was_drawn_before() -> None:
    late = drawn(5)
    for step in range(5):
        drawn(step)
    assert same(drawn(5), late)
    assert not same(drawn(5), drawn(6))
    assert not same(drawn(5), drawn(5, seed=2))


def test_the_shares_of_the_ranks_are_the_global_batch() -> None:
    for world_size in (1, 2, 4):
        shares = [drawn(3).share(rank, world_size) for rank in range(world_size)]
        for field in fields(Picks):
            joined = np.concatenate([getattr(share, field.name) for share in shares])
            np.testing.assert_array_equal(joined, getattr(drawn(3), field.name))


def test_every_trajectory_is_seen_once_before_one_is_seen_twice() -> None:
    order = np.concatenate([drawn(step).trajectory for step in range(5)])
    for epoch in order.reshape(2, 20):
        assert sorted(epoch) == list(range(20))
    assert not np.array_equal(*order.reshape(2, 20))


def test_windows_lie_inside_their_trajectory() -> None:
    frames = np.concatenate([drawn(step).frames for step in range(50)])
    assert frames.shape == (400, 4)
    assert (np.diff(frames, axis=1) == 1).all()
    assert set(frames[:, 0]) == set(range(6))


def test_columns_are_all_points_turned_around_the_circle() -> None:
    columns = drawn(0).columns
    assert columns.shape == (8, 16)
    assert (np.diff(columns, axis=1) % 16 == 1).all()
    assert len(set(columns[:, 0])) > 1
