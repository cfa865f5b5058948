"""Points: reads the values of each point from a grid, a list or a CSV file, or draws them from ranges."""

from __future__ import annotations

import csv
import io
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from math import prod
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from vastrun.launcher.config.job_loader import checked
from vastrun.launcher.config.source import FLOAT, INT, NULL, STR, Fault, SyntaxFault, fault_at, parse_value
from vastrun.launcher.config.yaml_reader import YamlReader, plain
from vastrun.launcher.core.batch import MAX_POINTS, Dimension
from vastrun.launcher.core.errors import UsageError

Cells = dict[str, Node]
"""The values of one point by key, each with its place in the file."""
ReadFile = Callable[[str], str]
"""Returns the text of a file in the folder of the batch file. Raises UsageError."""

KINDS = ("grid", "list", "csv", "search")
Method = Literal["sobol", "random", "tpe"]
"""Method of a search. With the last one, points depend on the results of earlier points."""
_KINDS: tuple[Literal["range", "log", "int", "choice"], ...] = ("range", "log", "int", "choice")
_EXPECTED = "expected {range: [low, high]}, {log: [low, high]}, {int: [low, high]} or {choice: [a, b]}"
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


def points_of(axes: Mapping[str, Node], read_file: ReadFile, faults: list[Fault]) -> list[Cells]:
    """Return the cells of every point in the file; invalid ones are added to `faults`.

    `axes`: one of grid, list and csv, with its node. Raises SyntaxFault, UsageError.
    """
    ((kind, node),) = axes.items()
    found = {"grid": _from_grid, "list": _from_list}
    points = _from_csv(node, read_file, faults) if kind == "csv" else found[kind](node, faults)
    if not faults and not points:
        faults.append(fault_at(node, kind, "has no points: give at least one value"))
    return points


def _from_grid(node: Node, faults: list[Fault]) -> list[Cells]:
    lists: dict[str, list[Node]] = {}
    for key, value in _section(node, "grid", faults):
        if not isinstance(value, SequenceNode):
            faults.append(fault_at(value, f"grid.{key}", "expected a list of values"))
        elif not value.value:
            faults.append(fault_at(value, f"grid.{key}", "expected at least one value, got an empty list"))
        else:
            lists[key] = value.value
    check_point_count(prod(len(values) for values in lists.values()))
    return grid_of(lists) if lists else []


def grid_of(lists: Mapping[str, list[Node]]) -> list[Cells]:
    """Return every combination of the values."""
    return [dict(zip(lists, values, strict=True)) for values in product(*lists.values())]


def _from_list(node: Node, faults: list[Fault]) -> list[Cells]:
    if not isinstance(node, SequenceNode):
        faults.append(fault_at(node, "list", "expected a list of sections, as - {lr: 1e-3}"))
        return []
    check_point_count(len(node.value))
    return [dict(_section(item, f"list[{n}]", faults)) for n, item in enumerate(node.value)]


def _from_csv(node: Node, read_file: ReadFile, faults: list[Fault]) -> list[Cells]:
    """Read a point from each row; the first line has the keys. An empty cell keeps the job's own value."""
    if not isinstance(node, ScalarNode) or not node.value:
        faults.append(fault_at(node, "csv", "expected the name of a file"))
        return []
    rows = csv.reader(io.StringIO(read_file(node.value)))
    keys = [key.strip() for key in next(rows, [])]
    points: list[Cells] = []
    for row in rows:
        if not any(row):
            continue
        line = rows.line_num
        if len(row) != len(keys):
            text = f"expected {len(keys)} values, one for each key of line 1, got {len(row)}"
            faults.append(Fault(False, line, "", text, node.value))
            continue
        points.append(
            {key: _cell(cell, node.value, line, key) for key, cell in zip(keys, row, strict=True) if cell}
        )
        check_point_count(len(points))
    return points


def _cell(text: str, source: str, line: int, key: str) -> Node:
    value = parse_value(text, source, key)
    if isinstance(value, CollectionNode) and not value.flow_style:  # `a: b`: no section without braces
        value = ScalarNode(STR, text.strip(), value.start_mark, value.end_mark)
    value.start_mark.line = line - 1
    return value


@dataclass(frozen=True, kw_only=True)
class SearchFields:
    """The search in a batch file."""

    samples: Annotated[int, Ge(1), Le(MAX_POINTS)]
    space: Any
    """A range for each key, as `axis_of` reads it."""
    seed: Annotated[int, Ge(0)] = 0
    method: Method = "sobol"


@dataclass(frozen=True, kw_only=True)
class _SearchFile:
    search: SearchFields


def search_in(node: Node, faults: list[Fault]) -> tuple[SearchFields, list[SearchAxis]] | None:
    """Return the search in a node, with the axes of its space; None when it is invalid."""
    mark = node.start_mark
    root = MappingNode(node.tag, [(ScalarNode(STR, "search", mark, mark), node)], mark, node.end_mark)
    reading = YamlReader(root, _SearchFile)
    found = checked(reading, _SearchFile)
    axes = []
    space = [value for key, value in _section(node, "search", []) if key == "space"]
    for key, value in _section(space[0], "search.space", reading.faults) if space else []:
        try:
            axes.append(axis_of(key, value))
            if key.partition(".")[0] == "code":
                raise SyntaxFault(
                    fault_at(value, f"search.space.{key}", "a search has one code; use `list:`")
                )
        except SyntaxFault as error:
            reading.faults.append(error.fault)
    faults += reading.faults
    return None if found is None or reading.faults else (found.search, axes)


def _section(node: Node, key: str, faults: list[Fault]) -> Iterator[tuple[str, Node]]:
    """Yield the entries of a section, each key once."""
    if not isinstance(node, MappingNode):
        empty = isinstance(node, ScalarNode) and node.tag == NULL
        if not empty:
            faults.append(fault_at(node, key, "expected a section of `key: value` lines"))
        return
    seen: set[str] = set()
    for name, value in node.value:
        text = name.value if isinstance(name, ScalarNode) else ""
        if not text or text in seen:
            faults.append(fault_at(name, f"{key}.{text}", "given twice" if text else "expected a key"))
            continue
        seen.add(text)
        yield text, value


def check_point_count(count: int) -> None:
    """Raise UsageError when there are too many points."""
    if count > MAX_POINTS:
        raise UsageError(
            f"the batch has {count:,} points; at most {MAX_POINTS:,} are taken",
            hint="search: {samples: 64, …} takes a sample of them",
        )


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
    return float(f"{value:.6g}")


def _number(value: float | int, place: Node) -> Node:
    tag = INT if isinstance(value, int) else FLOAT
    return ScalarNode(tag, repr(value), place.start_mark, place.end_mark)


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
