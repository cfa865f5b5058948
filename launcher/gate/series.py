"""Series of a box's metrics: every quantity by step, with few enough points to be drawn."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from vastrun.launcher.gate import caps
from vastrun.launcher.gate.metrics import is_printable_name, parse_number, parse_record

POINTS = 200
"""Maximum points of one series: a screen shows hardly more."""
_MISSING = -math.inf
"""Marks a step without a value. Arrays are used because each value in a mapping takes 100 bytes."""
_UNDRAWN = frozenset({"step", "at"})


@dataclass(frozen=True, kw_only=True)
class Series:
    """One quantity over the steps. `last`, `min` and `max` are of all values, not of the means."""

    name: str
    points: tuple[tuple[float, float], ...]
    """Step and value, in order; each the mean of several where there were more than `POINTS`."""
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
            if value is not None or _is_numeric(record[name]):
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
    return known < caps.SERIES and name not in _UNDRAWN and is_printable_name(name)


def _is_numeric(value: object) -> bool:
    """Return whether the value is a number; null is one that was not finite."""
    return value is None or isinstance(value, float)


def _series(name: str, by_step: dict[int, float | None]) -> Series | None:
    known = [(step, value) for step, value in sorted(by_step.items()) if value is not None]
    if not known:
        return None
    lost = sorted(step for step, value in by_step.items() if value is None)
    size = max(1, math.ceil(len(known) / POINTS))
    groups = (known[start : start + size] for start in range(0, len(known), size))
    values = [value for _, value in known]
    return Series(
        name=name,
        points=tuple((fmean(s for s, _ in group), fmean(v for _, v in group)) for group in groups),
        lost=tuple(lost[:: max(1, math.ceil(len(lost) / POINTS))]),
        averaged=size,
        last=values[-1],
        min=min(values),
        max=max(values),
    )
