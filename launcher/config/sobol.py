"""Sobol points: evenly spread samples of a unit cube, for searches. Standard library only.

Direction numbers: S. Joe and F. Y. Kuo, "Constructing Sobol sequences with better two-dimensional
projections", SIAM J. Sci. Comput. 30 (2008), table new-joe-kuo-6.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

_BITS = 32
# Of each dimension from the second: the coefficients of its primitive polynomial as bits, and its first
# direction numbers; their count is the polynomial's degree.
_DIRECTIONS: tuple[tuple[int, tuple[int, ...]], ...] = (
    (0, (1,)),
    (1, (1, 3)),
    (1, (1, 3, 1)),
    (2, (1, 1, 1)),
    (1, (1, 1, 3, 3)),
    (4, (1, 3, 5, 13)),
    (2, (1, 1, 5, 5, 17)),
    (4, (1, 1, 5, 5, 5)),
    (7, (1, 1, 7, 11, 19)),
    (11, (1, 1, 5, 1, 1)),
    (13, (1, 1, 1, 3, 11)),
    (14, (1, 3, 5, 5, 31)),
    (1, (1, 3, 3, 9, 7, 49)),
    (13, (1, 1, 1, 15, 21, 21)),
    (16, (1, 3, 1, 13, 27, 49)),
    (19, (1, 1, 1, 15, 7, 5)),
    (22, (1, 3, 1, 15, 13, 25)),
    (25, (1, 1, 5, 5, 19, 61)),
    (1, (1, 3, 7, 11, 23, 15, 103)),
    (4, (1, 3, 7, 13, 13, 15, 69)),
)
MOST_DIMENSIONS = len(_DIRECTIONS) + 1


def sobol(dimensions: int, seed: int | None) -> Iterator[tuple[float, ...]]:
    """Yield points in [0, 1)^dimensions without end, each axis shifted by `seed`; None: not shifted.

    The shift is digital (XOR), which keeps how evenly they are spread. At most `MOST_DIMENSIONS`.
    """
    chance = random.Random(seed)
    shifts = [0 if seed is None else chance.getrandbits(_BITS) for _ in range(dimensions)]
    directions = [_direction_numbers(axis) for axis in range(dimensions)]
    state = [0] * dimensions
    number = 0
    while True:
        yield tuple((x ^ shift) / 2.0**_BITS for x, shift in zip(state, shifts, strict=True))
        # Gray code: each point differs from the last by the direction of the lowest zero bit of its number.
        bit = (~number & (number + 1)).bit_length() - 1
        state = [x ^ numbers[bit] for x, numbers in zip(state, directions, strict=True)]
        number += 1


def uniform(dimensions: int, seed: int) -> Iterator[tuple[float, ...]]:
    """Yield independent random points in [0, 1)^dimensions without end, the same for the same seed."""
    chance = random.Random(seed)
    while True:
        yield tuple(chance.random() for _ in range(dimensions))


def _direction_numbers(axis: int) -> list[int]:
    """Return the numbers of one axis, as fractions of 2^32; the first axis counts in base two."""
    if axis == 0:
        return [1 << (_BITS - 1 - bit) for bit in range(_BITS)]
    coefficients, first = _DIRECTIONS[axis - 1]
    degree = len(first)
    numbers = [m << (_BITS - 1 - bit) for bit, m in enumerate(first)]
    for bit in range(degree, _BITS):
        number = numbers[bit - degree] ^ (numbers[bit - degree] >> degree)
        for term in range(1, degree):
            if (coefficients >> (degree - 1 - term)) & 1:
                number ^= numbers[bit - term]
        numbers.append(number)
    return numbers
