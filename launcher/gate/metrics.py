"""Metrics of a box: records of a metrics file, and series for charts."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from vastrun.launcher.gate import caps

_GOLDEN = (5**0.5 - 1) / 2
SERIES_POINTS = 200
"""Maximum points of one series: a screen shows hardly more."""
_MISSING = -math.inf
"""Marks a step without a value. Arrays are used because each value in a mapping takes 100 bytes."""


def parse_records(lines: Iterable[bytes]) -> list[dict[str, float]]:
    """Parse lines in order: the step, and each finite number by its name.

    Lines without a valid step are skipped, and so are unprintable names and names beyond
    `caps.METRICS_NAMES`. When there are more than `caps.METRICS_VALUES` values, lines are sampled evenly; the
    last one is kept.
    """
    names: dict[str, str] = {}
    found: list[tuple[int, dict[str, float]]] = []
    newest: dict[str, float] = {}
    share, values = 1.0, 0
    for number, record in enumerate(map(parse_record, lines)):
        step = record.get("step")
        if type(step) is not int or not 0 <= step <= caps.STEPS:
            continue
        newest = {"step": step, **_numbers(record, names)}
        if _is_sampled(number, share):
            found.append((number, newest))
            values += len(newest)
        while values > caps.METRICS_VALUES and len(found) > 1:
            share /= 2
            found = [(number, one) for number, one in found if _is_sampled(number, share)]
            values = sum(len(one) for _, one in found)
    if newest and (not found or found[-1][1] is not newest):
        found.append((0, newest))
    return [one for _, one in found]


def _numbers(record: Mapping[str, Any], names: dict[str, str]) -> dict[str, float]:
    """Return the finite numbers of a record. `names` interns the names, which saves memory."""
    found = {}
    for name, value in record.items():
        number = parse_number(value)
        if number is None or name == "step" or not is_printable_name(name):
            continue
        if name in names or len(names) < caps.METRICS_NAMES:
            found[names.setdefault(name, name)] = number
    return found


def _is_sampled(number: int, share: float) -> bool:
    """Sample by the golden ratio, which has no period: lines of which every Nth differs keep their share."""
    return number * _GOLDEN % 1 < share


def is_printable_name(name: str) -> bool:
    """Return whether a terminal may show the name."""
    return name.isprintable() and len(name) <= caps.NAME_BYTES


def parse_point(line: bytes, name: str) -> tuple[int, float] | None:
    """Parse the step and the value of `name` in a line of metrics; None when it has no such value.

    An invalid number, such as the loss of a training that diverged, becomes NaN.
    """
    record = parse_record(line)
    step = record.get("step")
    if name not in record or type(step) is not int or not 0 <= step <= caps.STEPS:
        return None
    value = parse_number(record[name])
    return step, math.nan if value is None else value


def parse_record(line: bytes) -> Mapping[str, Any]:
    """Parse a line of metrics; empty when it is invalid."""
    try:
        record = json.loads(line) if len(line) <= caps.LINE_CHARACTERS else None
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def lost_names(lines: Iterable[bytes]) -> tuple[str, ...]:
    """Return the names whose last value is no finite number, like the loss of a program that diverged."""
    newest: dict[str, object] = {}
    for record in map(parse_record, lines):
        newest |= {name: value for name, value in record.items() if is_printable_name(name)}
    lost = (name for name, value in newest.items() if value is None or isinstance(value, float))
    return tuple(name for name in lost if parse_number(newest[name]) is None)[: caps.SERIES]


def parse_number(value: object) -> float | None:
    """Return the value as a float; None when it is not a finite number, or is larger than any loss."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= caps.LOSS:
        return None  # also NaN
    return float(value) if abs(value) >= caps.MIN_LOSS else 0.0


@dataclass(frozen=True, kw_only=True)
class Series:
    """One quantity over the steps. `last`, `min` and `max` are of all values, not of the means."""

    name: str
    points: tuple[tuple[float, float], ...]
    """Step and value, in order; each the mean of several where there were more than `SERIES_POINTS`."""
    lost: tuple[float, ...] = ()
    """Steps with a value that is not finite."""
    averaged: int = 1
    """Values that one point is the mean of."""
    last: float
    min: float
    max: float


def parse_series(lines: Iterable[bytes], names: Collection[str] | None = None) -> tuple[Series, ...]:
    """Parse the series in lines of metrics, in the order of their first appearance.

    `names`: the series to return; None: the first `caps.SERIES`. A name without a finite number is left out.
    When a training resumed at a checkpoint, the last value of a repeated step counts.
    """
    rows: dict[int, int] = {}
    columns: dict[str, array[float]] = {}
    for line in lines:
        record = parse_record(line)
        step = record.get("step")
        if type(step) is not int or not 0 <= step <= caps.STEPS:
            continue
        row = rows.setdefault(step, len(rows))
        for name in record:
            if name not in columns and not _is_selected(name, names, len(columns)):
                continue
            value = parse_number(record[name])
            # A number that was not finite is null, or beyond those that are drawn.
            if value is not None or record[name] is None or isinstance(record[name], float):
                column = columns.setdefault(name, array("d"))
                column.extend([_MISSING] * (row + 1 - len(column)))
                column[row] = math.nan if value is None else value
    in_order = sorted(rows.items())
    found = (_series(name, _values_by_step(column, in_order)) for name, column in columns.items())
    return tuple(series for series in found if series is not None)


def _values_by_step(column: array[float], rows: Sequence[tuple[int, int]]) -> dict[int, float | None]:
    """Return the values of a column by step, in order; None for a value that is not finite."""
    found = ((step, column[row]) for step, row in rows if row < len(column) and column[row] != _MISSING)
    return {step: None if math.isnan(value) else value for step, value in found}


def _is_selected(name: str, names: Collection[str] | None, known: int) -> bool:
    if names is not None:
        return name in names
    return known < caps.SERIES and name not in ("step", "at") and is_printable_name(name)


def _series(name: str, by_step: dict[int, float | None]) -> Series | None:
    known = [(step, value) for step, value in sorted(by_step.items()) if value is not None]
    if not known:
        return None
    lost = sorted(step for step, value in by_step.items() if value is None)
    size = max(1, math.ceil(len(known) / SERIES_POINTS))
    groups = (known[start : start + size] for start in range(0, len(known), size))
    values = [value for _, value in known]
    return Series(
        name=name,
        points=tuple((fmean(s for s, _ in group), fmean(v for _, v in group)) for group in groups),
        lost=tuple(lost[:: max(1, math.ceil(len(lost) / SERIES_POINTS))]),
        averaged=size,
        last=values[-1],
        min=min(values),
        max=max(values),
    )
