"""Chunks: limits how many samples are read at once, so that large fields do not fill the memory."""

from collections.abc import Iterator

MAX_VALUES = 1 << 26
"""Values that are held at once: 256 MiB as float32, 512 MiB as float64."""


def rows_at_once(values_per_row: int, max_rows: int) -> int:
    """Return the number of rows to process at once: up to `max_rows`, fewer where a row is large."""
    return max(1, min(max_rows, MAX_VALUES // max(1, values_per_row)))


def ranges(count: int, size: int) -> Iterator[range]:
    """Yield the numbers below `count` in ranges of `size`; the last one may be shorter."""
    for first in range(0, count, size):
        yield range(first, min(first + size, count))
