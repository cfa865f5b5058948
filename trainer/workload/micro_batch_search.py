"""Micro-batch search: finds the largest micro-batch that fits into memory, with few trials."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

_LEADING_DIGITS = (4, 5, 6, 7)


def largest_micro_batch(max_size: int, room_bytes: int, peak_bytes: Callable[[int], int]) -> int | None:
    """Return the largest of the sizes to try up to `max_size` whose peak fits into `room_bytes`.

    None: not even one window fits.
    """
    sizes = sizes_to_try(max_size)
    if peak_bytes(sizes[-1]) <= room_bytes:
        return sizes[-1]
    if peak_bytes(1) > room_bytes:
        return None
    fits, too_large = 0, len(sizes) - 1
    while too_large - fits > 1 and not _next_cannot_fit(sizes, fits, room_bytes, peak_bytes):
        # The peak is the maximum over moments, each linear in the size: a convex function. Between two sizes
        # it is thus at most on the line between their peaks.
        low, high = sizes[fits], sizes[too_large]
        guess = low + int((room_bytes - peak_bytes(low)) / _bytes_per_window(low, high, peak_bytes))
        tried = min(max(bisect_right(sizes, guess) - 1, fits + 1), too_large - 1)
        fits, too_large = (tried, too_large) if peak_bytes(sizes[tried]) <= room_bytes else (fits, tried)
    return sizes[fits]


def sizes_to_try(max_size: int) -> list[int]:
    """Return sizes that can be halved repeatedly, each at most a quarter above the previous one (from 4 on).

    The memory probe, or a restart, halves a rank's share that does not fit after all. A share such as 47,
    whose only divisors are itself and 1, would drop to 1.
    """
    powers = range(max(1, max_size.bit_length()))
    sizes = [1, 2, 3, *(leading << power for power in powers for leading in _LEADING_DIGITS)]
    return [size for size in sizes if size <= max(1, max_size)]


def _next_cannot_fit(sizes: list[int], fits: int, room_bytes: int, peak_bytes: Callable[[int], int]) -> bool:
    """Return True when the next size cannot fit: beyond two sizes a convex peak is above their line."""
    if fits == 0:
        return False
    next_bytes = peak_bytes(1) + _bytes_per_window(1, sizes[fits], peak_bytes) * (sizes[fits + 1] - 1)
    return next_bytes > room_bytes


def _bytes_per_window(low: int, high: int, peak_bytes: Callable[[int], int]) -> float:
    return (peak_bytes(high) - peak_bytes(low)) / (high - low)
