"""Memory: large fields are processed in parts, and buffers are used again."""

import pytest
import torch

from vastrun.trainer.data.stored import BufferPool
from vastrun.trainer.data.trajectories import moments_of


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
