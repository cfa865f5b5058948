"""Conditions: what a comparison of those of the test set with those of the training set needs.

The condition of a sample is what it is solved from: its initial condition, or its coefficient.
"""

from __future__ import annotations

import dataclasses
import hashlib

import numpy as np
from numpy.typing import NDArray

_MAX_READ_BYTES = 1 << 30
"""Largest size of the training conditions that are compared; of larger sets, evenly spaced ones are."""
_VALUE_BYTES = 4


def bytes_of(condition: NDArray) -> bytes:
    """Return the bytes of a condition in the precision of the files; -0.0 counts as 0.0."""
    value = condition.astype(np.float32) + np.float32(0) if condition.dtype.kind == "f" else condition
    return np.ascontiguousarray(value).tobytes()


def digest_of(condition: NDArray) -> bytes:
    """Return a digest that two conditions share only if they are equal."""
    return hashlib.blake2b(bytes_of(condition), digest_size=16).digest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeenConditions:
    """Test conditions that are in the training set, at whatever parameter."""

    test: int
    """Number of test samples."""
    seen: int
    """Number of test samples whose condition is in the training set."""
    compared: int
    """Number of training samples that were compared."""
    train: int
    """Number of training samples."""

    @property
    def lines(self) -> list[str]:
        """Return a line for the user; none when no test condition was seen."""
        if not self.seen:
            return []
        part = "" if self.compared == self.train else f" (of which {self.compared} of {self.train} were read)"
        return [
            f"{self.seen} of {self.test} test samples have an initial condition or coefficient of the "
            f"training set{part}: their scores are those of known samples"
        ]


def rows_to_compare(samples: int, values: int, max_bytes: int = _MAX_READ_BYTES) -> list[int]:
    """Return the numbers of the training samples to compare; each condition has `values` values."""
    count = max(1, min(samples, max_bytes // (_VALUE_BYTES * values)))
    return np.linspace(0, samples - 1, count).round().astype(int).tolist()
