"""Memory: large fields are processed in parts, and buffers are used again."""

import pickle

import pytest
import torch

from vastrun.trainer.data.samples import MAX_VALUES, ranges, rows_at_once
from vastrun.trainer.data.stored import BufferPool
from vastrun.trainer.data.trajectories import moments_chunk, moments_of


def test_small_rows_are_processed_by_the_most_and_large_ones_one_at_a_time() -> None:
    assert rows_at_once(1, 256) == rows_at_once(MAX_VALUES // 256, 256) == 256
    assert rows_at_once(MAX_VALUES // 3, 256) == 3
    assert rows_at_once(10 * MAX_VALUES, 256) == 1


def test_ranges_hold_every_number_once() -> None:
    assert [list(part) for part in ranges(7, 3)] == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(ranges(0, 3)) == []


def test_only_a_trajectory_that_is_too_large_for_the_memory_is_cut_between_its_frames() -> None:
    assert moments_chunk(41, 256, steady=False) == (256, 41)
    assert moments_chunk(21, 5 * 128**3, steady=False) == (1, 6)
    # Input and target of a steady problem have moments of their own.
    assert moments_chunk(2, 512**3, steady=True) == (1, 2)


@pytest.mark.parametrize("grid", [(16,), (4, 6), (4, 4, 6)])
def test_the_moments_of_parts_are_those_of_the_whole(grid: tuple[int, ...]) -> None:
    fields = 3 + 2 * torch.randn(5, 7, 2, *grid, generator=torch.Generator().manual_seed(0))
    parts = [part for chunk in fields.split(2) for part in chunk.split(3, dim=1)]
    for found, whole in zip(moments_of(parts, steady=False), moments_of([fields], steady=False), strict=True):
        assert found.shape == (2, 2)
        torch.testing.assert_close(found, whole, rtol=1e-12, atol=0)
    expected = fields.transpose(0, 2).flatten(1).double()
    torch.testing.assert_close(moments_of(parts, steady=False)[1][0], expected.std(dim=1), rtol=1e-9, atol=0)


def test_memory_is_used_again_when_the_last_that_was_made_of_it_is_gone() -> None:
    memory = BufferPool()
    array = memory.empty((4, 5))
    place, part = array.ctypes.data, torch.from_numpy(array.reshape(2, 10))[1:]
    del array
    other = memory.empty((4, 5))
    assert other.ctypes.data != place
    del part
    again = memory.empty((2, 10))
    assert (again.ctypes.data, again.shape) == (place, (2, 10))


def test_another_size_takes_other_memory_and_another_process_begins_with_none() -> None:
    memory = BufferPool()
    place = memory.empty((4,)).ctypes.data
    assert memory.empty((400,)).size == 400
    memory.empty((4,))
    assert pickle.loads(pickle.dumps(memory)).empty((4,)).ctypes.data != place
