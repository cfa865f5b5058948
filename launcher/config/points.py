"""Points: reads the values of each point from a grid, a list or a CSV file, and the search in their place."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from vastrun.launcher.config.job_loader import checked
from vastrun.launcher.config.search import SearchAxis, axis_of
from vastrun.launcher.config.source import NULL, STR, Fault, SyntaxFault, fault_at, parse_value
from vastrun.launcher.config.yaml_reader import YamlReader
from vastrun.launcher.core.batch import MAX_POINTS
from vastrun.launcher.core.errors import UsageError

Cells = dict[str, Node]
"""The values of one point by key, each with its place in the file."""
ReadFile = Callable[[str], str]
"""Returns the text of a file in the folder of the batch file. Raises UsageError."""

KINDS = ("grid", "list", "csv", "search")


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
        faults.append(fault_at(node, "list", "expected a list of sections, as - {train.optim.lr: 1e-3}"))
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


Method = Literal["sobol", "random", "tpe"]
"""Method of a search. With the last one, points depend on the results of earlier points."""


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
