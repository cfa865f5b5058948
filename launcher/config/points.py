"""Points: reads the values of each point from a grid, a list, a CSV file or a search."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

from vastrun.launcher.config.search import SearchAxis, axis_of, samples_of
from vastrun.launcher.config.source import NULL, STR, Fault, SyntaxFault, fault_at, parse_value
from vastrun.launcher.config.yaml_reader import plain
from vastrun.launcher.core.batch import MAX_POINTS
from vastrun.launcher.core.errors import UsageError

Cells = dict[str, Node]
"""The values of one point by key, each with its place in the file."""
ReadFile = Callable[[str], str]
"""Returns the text of a file in the folder of the batch file. Raises UsageError."""

KINDS = ("grid", "list", "csv", "search")
METHODS = ("sobol", "random", "tpe")
"""Methods of a search. With the last one, points depend on the results of earlier points."""


def points_of(axes: Mapping[str, Node], read_file: ReadFile, faults: list[Fault]) -> list[Cells]:
    """Return the cells of every point in the file; invalid ones are added to `faults`.

    `axes`: one of grid, list, csv and search, with its node. Raises SyntaxFault, UsageError.
    """
    ((kind, node),) = axes.items()
    found = {"grid": _from_grid, "list": _from_list, "search": _from_search}
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


@dataclass(frozen=True, kw_only=True)
class SearchFields:
    """The search in a batch file."""

    axes: Sequence[SearchAxis]
    samples: int
    seed: int
    method: str


def search_in(node: Node, faults: list[Fault]) -> SearchFields | None:
    """Return the search in a node; None when it is invalid."""
    before, entries = len(faults), dict(_section(node, "search", faults))
    space = entries.pop("space", None)
    axes = []
    for key, value in _section(space, "search.space", faults) if space is not None else []:
        try:
            axes.append(axis_of(key, value))
        except SyntaxFault as error:
            faults.append(error.fault)
    if space is None:
        faults.append(fault_at(node, "search.space", "missing; give a range for each key"))
    samples = _whole(entries.pop("samples", None), "search.samples", 1, faults)
    seed = _whole(entries.pop("seed", None), "search.seed", 0, faults)
    method = _method(entries.pop("method", None), faults)
    for key, value in entries.items():
        text = "unknown key; the keys here are samples, seed, method, space"
        faults.append(fault_at(value, f"search.{key}", text))
    if samples is None and len(faults) == before:
        faults.append(fault_at(node, "search.samples", "missing; how many points?"))
    if samples is None or len(faults) > before:
        return None
    check_point_count(samples)
    return SearchFields(axes=axes, samples=samples, seed=seed or 0, method=method)


def _from_search(node: Node, faults: list[Fault]) -> list[Cells]:
    """Return a Sobol sequence, or independent random points, in the ranges of `space`."""
    search = search_in(node, faults)
    if search is None:
        return []
    return samples_of(search.axes, search.samples, search.seed, search.method)


def _method(node: Node | None, faults: list[Fault]) -> str:
    name = METHODS[0] if node is None else str(plain(node))
    if node is not None and name not in METHODS:
        faults.append(fault_at(node, "search.method", f"expected one of {', '.join(METHODS)}, got {name!r}"))
    return name


def _whole(node: Node | None, key: str, low: int, faults: list[Fault]) -> int | None:
    value = None if node is None else plain(node)
    if node is not None and (not isinstance(value, int) or isinstance(value, bool) or value < low):
        faults.append(fault_at(node, key, f"expected a whole number of at least {low}, got {value!r}"))
        return None
    return value


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
