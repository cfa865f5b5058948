"""curves_of(): the losses that a box's metrics tell of, step by step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vastrun.launcher.gate import caps

SERIES: Mapping[str, str] = {
    "loss": "training loss",
    "validation_loss": "validation loss",
    "validation_nrmse": "validation nRMSE",
}
"""What is drawn, by its name in the metrics."""
_GOLDEN = (5**0.5 - 1) / 2
POINTS = 400
"""Of one curve at most."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One quantity over the steps."""

    name: str
    points: tuple[tuple[float, float], ...]
    """Step and value, in order; each the mean of several where there were more than `POINTS`."""
    lost: tuple[float, ...] = ()
    """Steps at which the value was no finite number."""
    averaged: int = 1
    """How many values one point is the mean of."""


def curves_of(lines: Iterable[bytes]) -> tuple[Curve, ...]:
    """Read the curves of some lines of metrics. What is no number of ours is left out."""
    values: dict[str, dict[int, float | None]] = {name: {} for name in SERIES}
    for line in lines:
        record = record_of(line)
        step = record.get("step")
        if type(step) is int and 0 <= step <= caps.STEPS:
            for name in SERIES.keys() & record.keys():
                values[name][step] = number_in(record[name])
    return tuple(_curve(name, by_step) for name, by_step in values.items() if by_step)


def records_of(lines: Iterable[bytes]) -> list[dict[str, float]]:
    """Return what the lines say, in their order: the step, and each finite number by its name.

    A line without a step of ours is left out, and so are names that no terminal should print, and those after
    `caps.METRICS_NAMES`. Of more than `caps.METRICS_VALUES` lines are left out evenly, never the last one.
    """
    names: dict[str, str] = {}
    found: list[tuple[int, dict[str, float]]] = []
    newest: dict[str, float] = {}
    share, values = 1.0, 0
    for number, record in enumerate(map(record_of, lines)):
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
    """The finite numbers of a record. `names`: those that were met, so that each is kept once."""
    found = {}
    for name, value in record.items():
        number = number_in(value)
        if number is None or name == "step" or not is_name(name):
            continue
        if name in names or len(names) < caps.METRICS_NAMES:
            found[names.setdefault(name, name)] = number
    return found


def _is_sampled(number: int, share: float) -> bool:
    """Spread over all numbers without a period: of lines of which one in N differs, the same share stays."""
    return number * _GOLDEN % 1 < share


def is_name(name: str) -> bool:
    """Return whether the name may be shown."""
    return name.isprintable() and len(name) <= caps.NAME_BYTES


def point_of(line: bytes, name: str) -> tuple[int, float] | None:
    """Read the step and the value of that name in a line of metrics; None when it tells of no such value.

    What is told and is no number of ours, as the loss of a training that diverged, is NaN.
    """
    record = record_of(line)
    step = record.get("step")
    if name not in record or type(step) is not int or not 0 <= step <= caps.STEPS:
        return None
    value = number_in(record[name])
    return step, math.nan if value is None else value


def record_of(line: bytes) -> Mapping[str, Any]:
    """Read a line of metrics; empty when it is none."""
    try:
        record = json.loads(line) if len(line) <= caps.LINE_CHARACTERS else None
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def number_in(value: object) -> float | None:
    """Return the value; None when it is no finite number, or beyond what any loss is."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= caps.LOSS:
        return None  # also NaN
    return float(value) if abs(value) >= caps.LEAST_LOSS else 0.0


def _curve(name: str, by_step: Mapping[int, float | None]) -> Curve:
    from statistics import fmean  # slow to import: fractions, decimals

    known = [(step, value) for step, value in sorted(by_step.items()) if value is not None]
    lost = sorted(step for step, value in by_step.items() if value is None)
    size = max(1, math.ceil(len(known) / POINTS))
    groups = (known[start : start + size] for start in range(0, len(known), size))
    return Curve(
        name=SERIES[name],
        points=tuple((fmean(s for s, _ in group), fmean(v for _, v in group)) for group in groups),
        lost=tuple(lost[:: max(1, math.ceil(len(lost) / POINTS))]),
        averaged=size,
    )
