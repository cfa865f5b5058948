"""Conditions: compares those of the test set with those of the training set.

The condition of a sample is what it is solved from: its initial condition, or its coefficient.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vastrun.trainer.data.samples import Samples, Splits

_MAX_READ_BYTES = 1 << 30
"""Largest size of the training conditions that are compared; of larger sets, evenly spaced ones are."""
_READ_BATCH = 64
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


def find_seen(splits: Splits, *, max_bytes: int = _MAX_READ_BYTES) -> SeenConditions:
    """Compare the test conditions of a built-in task with those of its training set. Raises DataError.

    Of the training conditions at most `max_bytes` are read.
    """
    train, test = splits.train, splits.test
    chosen = rows_to_compare(len(train), math.prod(train.shape[1:]), max_bytes)
    known = set(_digests(train, chosen))
    own = list(_digests(test, range(len(test))))
    return SeenConditions(
        test=len(own),
        seen=sum(digest in known for digest in own),
        compared=len(chosen),
        train=len(train),
    )


def rows_to_compare(samples: int, values: int, max_bytes: int = _MAX_READ_BYTES) -> list[int]:
    """Return the numbers of the training samples to compare; each condition has `values` values."""
    count = max(1, min(samples, max_bytes // (_VALUE_BYTES * values)))
    return np.linspace(0, samples - 1, count).round().astype(int).tolist()


def _digests(samples: Samples, rows: Any) -> Iterator[bytes]:
    for first in range(0, len(rows), _READ_BATCH):
        chosen = rows[first : first + _READ_BATCH]
        fields = samples.read(chosen, slice(0, 1))
        # A steady sample is (channels, *X), inputs before the target.
        yield from map(digest_of, fields[:, :-1] if samples.steady else fields[:, 0])
