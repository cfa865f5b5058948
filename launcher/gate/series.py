"""series_of(): every quantity that a box's metrics tell of, step by step, few enough points to be drawn."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from vastrun.launcher.gate import caps
from vastrun.launcher.gate.metrics import is_name, number_in, record_of

POINTS = 200
"""Of one series at most: a screen shows hardly more."""
_MISSING = -math.inf
"""A step at which a name has no value. Arrays are used since each value in a mapping takes 100 bytes."""
_UNDRAWN = frozenset({"step", "at"})


@dataclass(frozen=True, kw_only=True)
class Series:
    """One quantity over the steps. The numbers beside its points are of all its values, not of the means."""

    name: str
    points: tuple[tuple[float, float], ...]
    """Step and value, in order; each the mean of several where there were more than `POINTS`."""
    lost: tuple[float, ...] = ()
    """Steps at which the value was no finite number."""
    averaged: int = 1
    """How many values one point is the mean of."""
    last: float
    least: float
    most: float


def series_of(lines: Iterable[bytes], names: Collection[str] | None = None) -> tuple[Series, ...]:
    """Read the series of some lines of metrics, in the order of their names there.

    `names`: of these only; else of the first `caps.SERIES`. A name without any finite number is left out.
    Where a training began again at a checkpoint, what it told last of a step counts.
    """
    rows: dict[int, int] = {}
    columns: dict[str, array[float]] = {}
    for line in lines:
        record = record_of(line)
        step = record.get("step")
        if type(step) is not int or not 0 <= step <= caps.STEPS:
            continue
        row = rows.setdefault(step, len(rows))
        for name in record:
            if name not in columns and not _is_wanted(name, names, len(columns)):
                continue
            value = number_in(record[name])
            if value is not None or _tells_of_a_number(record[name]):
                column = columns.setdefault(name, array("d"))
                column.extend([_MISSING] * (row + 1 - len(column)))
                column[row] = math.nan if value is None else value
    in_order = sorted(rows.items())
    found = (_series(name, _values_by_step(column, in_order)) for name, column in columns.items())
    return tuple(series for series in found if series is not None)


def _values_by_step(column: array[float], rows: Sequence[tuple[int, int]]) -> dict[int, float | None]:
    """Return the values of a name by their steps, in order; None: no finite number."""
    found = ((step, column[row]) for step, row in rows if row < len(column) and column[row] != _MISSING)
    return {step: None if math.isnan(value) else value for step, value in found}


def _is_wanted(name: str, names: Collection[str] | None, known: int) -> bool:
    if names is not None:
        return name in names
    return known < caps.SERIES and name not in _UNDRAWN and is_name(name)


def _tells_of_a_number(value: object) -> bool:
    """Whether it stands for a number that was not finite: such a one is written as null."""
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
        least=min(values),
        most=max(values),
    )
