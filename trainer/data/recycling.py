"""Recycling: memory of batches that nobody holds any more serves the next ones.

To ask the system for it each time costs as much as to fill it: every page is zeroed, and given back.
"""

from __future__ import annotations

import weakref
from math import prod
from typing import Any

import numpy as np

from trainer.data.pdebench import Fields

_KEPT = 8
"""Batches; what is free beyond them goes back to the system."""


class Recycled:
    """Arrays one after the other. Safe to use from several threads."""

    def __init__(self) -> None:
        self._free: list[Fields] = []

    def empty(self, shape: tuple[int, ...]) -> Fields:
        """As `np.empty`, float32. Its memory is used again when it is gone, and all that was made of it."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = np.empty(prod(shape), np.float32)
        if memory.size != prod(shape):
            memory = np.empty(prod(shape), np.float32)
        loan = _Loan(memory)
        weakref.finalize(loan, self._take_back, memory).atexit = False
        return np.asarray(loan).reshape(shape)

    def _take_back(self, memory: Fields) -> None:
        if len(self._free) < _KEPT:
            self._free.append(memory)

    def __getstate__(self) -> dict[str, Any]:
        """For another process: it has none of this one's memory."""
        return {"_free": []}


class _Loan:
    """What all arrays and tensors that are made of the memory hold on to, at the end of their chain."""

    def __init__(self, memory: Fields) -> None:
        self.__array_interface__ = memory.__array_interface__
