"""Search: draws values of points from ranges."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from vastrun.launcher.config.source import FLOAT, INT, SyntaxFault, fault_at
from vastrun.launcher.config.yaml_reader import plain
from vastrun.launcher.core.batch import Dimension

_DIGITS = 6
"""Significant digits of a drawn value, which appears in tables and file names."""
_KINDS: tuple[Literal["range", "log", "int", "choice"], ...] = ("range", "log", "int", "choice")
_EXPECTED = "expected {range: [low, high]}, {log: [low, high]}, {int: [low, high]} or {choice: [a, b]}"


@dataclass(frozen=True, kw_only=True)
class SearchAxis:
    """A dimension of a search, with the function that maps a number from 0 to 1 to a value."""

    dimension: Dimension
    value: Callable[[float], Node]

    @property
    def key(self) -> str:
        """Key of the job, or of the user's program."""
        return self.dimension.key


def axis_of(key: str, node: Node) -> SearchAxis:
    """Return the axis of an entry of `space`. Raises SyntaxFault."""
    if not isinstance(node, MappingNode) or len(node.value) != 1:
        raise SyntaxFault(fault_at(node, key, _EXPECTED))
    ((name, among),) = node.value
    kind = next((one for one in _KINDS if isinstance(name, ScalarNode) and name.value == one), None)
    if not isinstance(among, SequenceNode) or kind is None:
        raise SyntaxFault(fault_at(node, key, _EXPECTED))
    if kind == "choice":
        choices = among.value
        if not choices:
            raise SyntaxFault(fault_at(node, key, "expected at least one choice"))
        return SearchAxis(
            dimension=Dimension(key=key, kind=kind, among=tuple(map(plain, choices))),
            value=lambda u: choices[min(int(u * len(choices)), len(choices) - 1)],
        )
    low, high = _bounds(key, kind, among)
    return SearchAxis(
        dimension=Dimension(key=key, kind=kind, among=(low, high)),
        value=lambda u: _number(_between(kind, low, high, u), node),
    )


def samples_of(axes: Sequence[SearchAxis], samples: int, seed: int, method: str) -> list[dict[str, Node]]:
    """Return `samples` points: of a Sobol sequence shifted by `seed`, or independent ones ("random")."""
    draw = uniform if method == "random" or len(axes) > MAX_DIMENSIONS else sobol
    cube = islice(draw(len(axes), seed), samples)
    return [{axis.key: axis.value(u) for axis, u in zip(axes, point, strict=True)} for point in cube]


def _bounds(key: str, kind: str, among: SequenceNode) -> tuple[float, float]:
    ends = [plain(node) for node in among.value]
    numbers = [end for end in ends if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(ends) != 2 or len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise SyntaxFault(fault_at(among, key, f"{kind}: expected two numbers, the lower one first"))
    low, high = numbers
    if kind == "log" and low <= 0:
        raise SyntaxFault(fault_at(among, key, f"log: expected numbers above 0, got {low:g}"))
    if kind == "int" and not all(isinstance(number, int) for number in numbers):
        raise SyntaxFault(fault_at(among, key, "int: expected whole numbers"))
    return low, high


def _between(kind: str, low: float, high: float, u: float) -> float | int:
    if kind == "int":  # each whole number is as likely as any other
        return int(low) + min(int(u * (high - low + 1)), int(high - low))
    value = math.exp(math.log(low) + u * math.log(high / low)) if kind == "log" else low + u * (high - low)
    return float(f"{value:.{_DIGITS}g}")


def _number(value: float | int, place: Node) -> Node:
    tag = INT if isinstance(value, int) else FLOAT
    return ScalarNode(tag, repr(value), place.start_mark, place.end_mark)


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
MAX_DIMENSIONS = len(_DIRECTIONS) + 1


def sobol(dimensions: int, seed: int | None) -> Iterator[tuple[float, ...]]:
    """Yield points in [0, 1)^dimensions without end, each axis shifted by `seed`; None: not shifted.

    The shift is digital (XOR), which keeps how evenly they are spread. At most `MAX_DIMENSIONS`.
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
