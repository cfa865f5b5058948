"""Recycled memory: used again when nobody holds it any more, and never before."""

import pickle

import torch

from vastrun.trainer.data.stored import BufferPool


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
