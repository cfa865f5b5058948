"""The largest micro-batch that has room is found with few tries, and can be halved again and again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from vastrun.trainer.workload.micro_batch_search import largest_micro_batch, sizes_to_try


class Peaks:
    """A step whose peak is the higher of two moments: one of so many bytes, one that grows by window."""

    def __init__(self, *, fixed: int = 0, still: int = 100, per_window: int = 10) -> None:
        self.fixed, self.still, self.per_window = fixed, still, per_window
        self.tried: list[int] = []

    def __call__(self, size: int) -> int:
        if size not in self.tried:
            self.tried.append(size)
        return max(self.fixed, self.still + self.per_window * size)


@pytest.mark.parametrize(
    ("room", "fixed"),
    [(111, 0), (130, 0), (500, 0), (12_345, 0), (99_999, 0), (400, 400), (450, 400), (12_345, 4_000)],
)
def test_it_has_room_and_the_next_size_has_not(room: int, fixed: int) -> None:
    peaks, sizes = Peaks(fixed=fixed), sizes_to_try(9216)
    found = largest_micro_batch(9216, room, peaks)
    assert found == max(size for size in sizes if peaks(size) <= room)


def test_few_sizes_are_tried() -> None:
    peaks = Peaks(fixed=2_000)
    assert largest_micro_batch(9216, 5_000, peaks) == 448
    assert len(peaks.tried) <= 6
    plain = Peaks()
    assert largest_micro_batch(9216, 5_000, plain) == 448
    assert len(plain.tried) == 3


def test_more_than_there_is_to_compute_is_not_tried_and_too_little_room_is_none() -> None:
    assert largest_micro_batch(47, 10**9, Peaks()) == 40
    assert largest_micro_batch(1, 10**9, Peaks()) == 1
    assert largest_micro_batch(47, 105, Peaks()) is None


def test_each_size_is_near_the_one_before_and_has_halves() -> None:
    sizes = sizes_to_try(5000)
    assert sizes == sorted(set(sizes))
    assert all(after <= before * 1.25 for before, after in pairwise(sizes[3:]))
    assert all(size % 8 == 0 for size in sizes if size >= 32)
    assert sizes_to_try(0) == [1]
