"""Axes of a picture: the position of each value, and the ticks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_UNITS = ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
_MIN_LOG_RATIO = 20.0
"""Ratio of the largest to the smallest positive value from which an axis is logarithmic."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Map from values to positions in the picture."""

    place: Callable[[float], float]
    ticks: Sequence[float]


def wants_logarithm(values: Sequence[float]) -> bool:
    """Return whether the values need a logarithmic axis, as a loss that falls by decades does."""
    return min(values) > 0 and max(values) / min(values) >= _MIN_LOG_RATIO


def linear(low: float, high: float, start: float, end: float, *, whole: bool = False) -> Axis:
    """Return a linear axis, 5 % longer than its values at both ends unless these are whole numbers."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        low, high = low - (abs(low) or 1.0) / 2, high + (abs(high) or 1.0) / 2
    room = 0.0 if whole else (high - low) * 0.05
    low, high = low - room, high + room
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    unit = max(next(n * power for n in (1, 2, 5, 10) if n * power >= raw * 0.999), 1.0 if whole else 0.0)
    first, last = math.ceil(low / unit - 1e-9), math.floor(high / unit + 1e-9)
    ticks = [number * unit for number in range(first, last + 1)]
    return Axis(place=lambda value: start + (end - start) * ((value - low) / (high - low)), ticks=ticks)


def logarithmic(low: float, high: float, start: float, end: float) -> Axis:
    """Return a logarithmic axis."""
    bottom, top = math.log10(low), math.log10(high)
    room = (top - bottom) * 0.05
    bottom, top = bottom - room, top + room
    every = max(1, math.ceil((top - bottom) / 7))
    between = (1, 2, 5) if top - bottom < 2.5 else (1,)
    powers = range(math.floor(bottom / every) * every, math.ceil(top) + 1, every)
    ticks = [n * 10.0**p for p in powers for n in between if bottom <= math.log10(n) + p <= top]
    return Axis(
        place=lambda value: start + (end - start) * ((math.log10(value) - bottom) / (top - bottom)),
        ticks=ticks,
    )


def count_text(steps: float) -> str:
    """Write `1,500`, `20k`, `3.5M`."""
    for min_steps, size, unit in _UNITS:
        if steps >= min_steps:
            return f"{steps / size:.4g}{unit}"
    return f"{steps:,.0f}"
