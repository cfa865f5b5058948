"""The largest micro-batch that has room, found with few tries."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable

_LEADING = (4, 5, 6, 7)


def largest_fitting_batch(most: int, room_bytes: int, peak_bytes: Callable[[int], int]) -> int | None:
    """Return the largest micro-batch that has room, of the sizes that are tried, `most` at most.

    `peak_bytes` says what one takes. None: not even one window has room.
    """
    sizes = sizes_to_try(most)
    if peak_bytes(sizes[-1]) <= room_bytes:
        return sizes[-1]
    if peak_bytes(1) > room_bytes:
        return None
    fits, too_large = 0, len(sizes) - 1
    while too_large - fits > 1 and not _is_last(sizes, fits, room_bytes, peak_bytes):
        # A peak is the highest of moments that each grow in proportion to the size, plus what does not grow.
        # Between two sizes it is thus at most on the line between theirs.
        low, high = sizes[fits], sizes[too_large]
        guess = low + int((room_bytes - peak_bytes(low)) / _per_window(low, high, peak_bytes))
        tried = min(max(bisect_right(sizes, guess) - 1, fits + 1), too_large - 1)
        fits, too_large = (tried, too_large) if peak_bytes(sizes[tried]) <= room_bytes else (fits, tried)
    return sizes[fits]


def sizes_to_try(most: int) -> list[int]:
    """Return sizes, each at most a quarter more than the one before, that may be halved again and again.

    The memory probe, or a restart, halves a rank's share where it does not fit after all. Of a share such as
    47, whose only divisors are itself and 1, nothing would be left.
    """
    powers = range(max(1, most.bit_length()))
    sizes = [1, 2, 3, *(leading << power for power in powers for leading in _LEADING)]
    return [size for size in sizes if size <= max(1, most)]


def _is_last(sizes: list[int], fits: int, room_bytes: int, peak_bytes: Callable[[int], int]) -> bool:
    """Tell whether the next size cannot fit: beyond two sizes a peak is not below the line through theirs."""
    if fits == 0:
        return False
    next_bytes = peak_bytes(1) + _per_window(1, sizes[fits], peak_bytes) * (sizes[fits + 1] - 1)
    return next_bytes > room_bytes


def _per_window(low: int, high: int, peak_bytes: Callable[[int], int]) -> float:
    return (peak_bytes(high) - peak_bytes(low)) / (high - low)
