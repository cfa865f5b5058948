"""Epochs: choose the samples of each global batch. Each epoch has every sample once, in a new order."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Remainder = Literal["carry", "drop", "pad"]
"""Treatment of the samples that do not fill the last batch of an epoch. carry: they begin the next epoch's
first batch; drop: they are left out of this epoch; pad: the epoch's first samples fill the batch up."""

_ORDER_STREAM = 0
"""Keeps these random numbers apart from those of a mix of tasks with the same seed."""


def batch_of(
    seed: int, step: int, *, batch: int, total: int, remainder: Remainder = "carry"
) -> NDArray[np.int64]:
    """Return the samples in the global batch of `step`: (batch,), numbers from 0 to `total` - 1.

    Steps are counted from 0. Raises ValueError when dropping the remainder leaves no batch.
    """
    # With "carry" one batch may span several epochs, each with its own order.
    epochs, positions = _positions(step, batch, total, remainder)
    samples: NDArray[np.int64] = np.empty(batch, np.int64)
    for epoch in range(epochs[0], epochs[-1] + 1):
        mine = epochs == epoch
        samples[mine] = _order(seed, epoch, total)[positions[mine]]
    return samples


def steps_per_epoch(*, batch: int, total: int, remainder: Literal["drop", "pad"]) -> int:
    """Return the number of batches in an epoch. Raises ValueError when dropping the remainder leaves none."""
    steps = total // batch if remainder == "drop" else -(-total // batch)
    if not steps:
        raise ValueError(f"a batch of {batch} is larger than the {total} samples: none is left to train on")
    return steps


def _positions(
    step: int, batch: int, total: int, remainder: Remainder
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each sample's epoch and its position in the order of that epoch: two arrays of (batch,)."""
    if remainder == "carry":
        epochs, positions = np.divmod(np.arange(step * batch, (step + 1) * batch), total)
        return epochs, positions
    epoch, turn = divmod(step, steps_per_epoch(batch=batch, total=total, remainder=remainder))
    return np.full(batch, epoch), np.arange(turn * batch, (turn + 1) * batch) % total


@lru_cache(maxsize=4)
def _order(seed: int, epoch: int, total: int) -> NDArray[np.int64]:
    """Return the order of the samples in one epoch, (total,). Cached, since each of its steps needs it."""
    return np.random.default_rng([seed, _ORDER_STREAM, epoch]).permutation(total)
