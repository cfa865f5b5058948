"""Shared buffers: memory of two processes that passes batches from one to the other.

It is anonymous memory (memfd), allocated fully at the start: no file in `/dev/shm`, which is often too small
in containers, and no SIGBUS in the middle of a training.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from math import prod
from multiprocessing.reduction import DupFd
from typing import Any
from weakref import finalize

import numpy as np
import torch

from vastrun.contract.errors import DataError
from vastrun.trainer.data.trajectories import Windows

_ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True)
class Field:
    """Place of one tensor of a batch in a slot."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def end(self) -> int:
        return self.offset + prod(self.shape) * np.dtype(self.dtype).itemsize


class SharedBuffers:
    """Slots for `count` batches shaped like `example`, shared with a process that it is pickled to."""

    def __init__(self, example: Windows, count: int) -> None:
        self.count = count
        self._fields = _layout(example)
        self._size = _aligned(self._fields[-1].end)
        fd = os.memfd_create("batches")
        os.posix_fallocate(fd, 0, self._size * count)
        self._map(fd)

    def write(self, buffer: int, batch: Windows) -> None:
        """Write the batch to a slot. Raises DataError when its shapes differ from the example's."""
        found = _layout(batch)
        if found != self._fields:
            raise DataError(
                f"all batches must have equal shapes: expected {_shapes(self._fields)}, got {_shapes(found)}"
            )
        for name, there in self._arrays(buffer).items():
            there[...] = getattr(batch, name).numpy()

    def read(self, buffer: int) -> Windows:
        """Return the batch in the slot, without a copy."""
        return Windows(**{name: torch.from_numpy(array) for name, array in self._arrays(buffer).items()})

    def _arrays(self, buffer: int) -> dict[str, np.ndarray]:
        begin = buffer * self._size
        return {
            field.name: np.ndarray(field.shape, field.dtype, self._memory, begin + field.offset)
            for field in self._fields
        }

    def __getstate__(self) -> dict[str, Any]:
        return {"count": self.count, "fields": self._fields, "size": self._size, "fd": DupFd(self._fd)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.count, self._fields, self._size = state["count"], state["fields"], state["size"]
        self._map(state["fd"].detach())

    def _map(self, fd: int) -> None:
        self._fd = fd
        self._memory = mmap.mmap(fd, 0)
        finalize(self, os.close, fd)


def _layout(batch: Windows) -> list[Field]:
    fields: list[Field] = []
    for name, tensor in batch.tensors.items():
        array = tensor.numpy()
        offset = _aligned(fields[-1].end) if fields else 0
        fields.append(Field(name=name, dtype=array.dtype.str, shape=array.shape, offset=offset))
    return fields


def _shapes(fields: list[Field]) -> str:
    return ", ".join(f"{field.name} {field.shape} {field.dtype}" for field in fields)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
