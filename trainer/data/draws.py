"""Draws: random conditions of the samples of a file, without repeats and without uniform ones.

The condition of a sample is what it is solved from: its initial condition, or its coefficient.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sized
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vastrun.trainer.errors import DataError

_TRAIN_STREAM, _TEST_STREAM = 0, 1
_SPARE_STREAM = 1
"""Keeps the draws that replace rejected ones apart: all other samples stay the same."""
_FILE_STREAM = 2
"""Keeps the draws of files with conditions of their own apart."""
_MAX_DRAWS = 1000
"""Draws for one sample before the generator is taken to have no further condition."""

Drawn = TypeVar("Drawn", bound=Sized)
Draw = Callable[[int, np.random.Generator], Sized]
"""Draws that number of conditions."""


def distinct_draws(
    draw: Draw, *, seed: int, file: int | None, train: int, test: int, chunk: int, axes: int
) -> Iterator[Sized]:
    """Yield the conditions of the training set, then those of the test set, a chunk at a time.

    `file`: number of a file whose training set has conditions of its own; None: all files have the same.
    `axes`: those of the grid. Raises DataError.
    """
    single = draw(1, np.random.default_rng(seed))
    distinct, again = (DistinctConditions(single, axes) for _ in range(2))

    def draws(stream: list[int], n: int, known: DistinctConditions) -> Iterator[Sized]:
        rng, spare = (np.random.default_rng([seed, *stream, *more]) for more in ([], [_SPARE_STREAM]))
        for begin in range(0, n, chunk):
            drawn = draw(min(chunk, n - begin), rng)
            yield known.replace_rejected(drawn, lambda: draw(1, spare))

    # The test set is drawn first, so that it does not depend on the size of the training set.
    for _ in draws([_TEST_STREAM], test, distinct):
        pass
    train_stream = [_TRAIN_STREAM] if file is None else [_TRAIN_STREAM, _FILE_STREAM, file]
    yield from chain(draws(train_stream, train, distinct), draws([_TEST_STREAM], test, again))


class DistinctConditions:
    """Filter for drawn conditions: replaces those that were drawn before, and uniform ones."""

    def __init__(self, single: Sized, axes: int) -> None:
        """`single`: a draw of one sample; `axes`: those of the grid."""
        self._axes = axes
        # Samples may share arrays, such as a list of wavenumbers: only arrays of one row differ by sample.
        self._has_rows = [len(array) == 1 for array in _arrays(single)]
        self._seen: set[bytes] = set()

    def replace_rejected(self, drawn: Drawn, redraw: Callable[[], Drawn]) -> Drawn:
        """Replace the rejected rows of `drawn`, in place, with single rows of `redraw`. Raises DataError.

        The accepted rows stay as they are, and count as drawn from then on.
        """
        for row in range(len(drawn)):
            for _ in range(_MAX_DRAWS):
                if self._accept(drawn, row):
                    break
                for array, other in zip(self._rows_of(drawn), self._rows_of(redraw()), strict=True):
                    array[row] = other[0]
            else:
                raise DataError(
                    f"{_MAX_DRAWS} conditions in a row were uniform or drawn before: "
                    "ask for fewer samples, or for more points"
                )
        return drawn

    def _accept(self, drawn: Sized, row: int) -> bool:
        digest = hashlib.blake2b(digest_size=16)
        for array in self._rows_of(drawn):
            value = array[row]
            if value.ndim >= self._axes and is_uniform(value, self._axes):
                return False
            digest.update(bytes_of(value))
        key = digest.digest()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def _rows_of(self, drawn: Sized) -> list[NDArray]:
        """Return the arrays that have a row for each sample."""
        pairs = zip(_arrays(drawn), self._has_rows, strict=True)
        return [array for array, has_rows in pairs if has_rows]


def _arrays(drawn: Any) -> list[NDArray]:
    """Return the arrays of a draw: an array, or a dataclass of arrays and further dataclasses."""
    if isinstance(drawn, np.ndarray):
        return [drawn]
    if not dataclasses.is_dataclass(drawn):
        return []
    return [array for field in dataclasses.fields(drawn) for array in _arrays(getattr(drawn, field.name))]


def bytes_of(condition: NDArray) -> bytes:
    """Return the bytes of a condition in the precision of the files; -0.0 counts as 0.0."""
    value = condition.astype(np.float32) + np.float32(0) if condition.dtype.kind == "f" else condition
    return np.ascontiguousarray(value).tobytes()


def digest_of(condition: NDArray) -> bytes:
    """Return a digest that two conditions share only if they are equal."""
    return hashlib.blake2b(bytes_of(condition), digest_size=16).digest()


def is_uniform(condition: NDArray, axes: int) -> bool:
    """Tell whether each channel of a condition (..., *X) has a single value, on a grid with `axes` axes."""
    flat = condition.reshape(*condition.shape[: condition.ndim - axes], -1)
    return bool((flat == flat[..., :1]).all())
