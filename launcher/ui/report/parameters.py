"""A scale for each parameter of a batch: numbers on an axis, anything else at even distances."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from launcher.ui.render.axes import Axis, linear, logarithmic, wants_logarithm
from launcher.ui.render.point_values import value_text

MOST_KEYS = 8
_MOST_CHOICES = 12
_FEW = 6
"""So few values are written beside the axis themselves."""
_LARGEST = 1e300


@dataclass(frozen=True, kw_only=True)
class ParameterScale:
    """From the values of a parameter to places on the paper."""

    place: Callable[[Any], float]
    labels: Sequence[tuple[float, str]]
    """Places, and what is written there."""


def number_scale(values: Sequence[float], start: float, end: float) -> ParameterScale:
    """Return a scale of numbers, logarithmic where they differ by more than an eye tells apart."""
    axis: Axis = (logarithmic if wants_logarithm(values) else linear)(min(values), max(values), start, end)
    return ParameterScale(place=axis.place, labels=[(axis.place(tick), f"{tick:.4g}") for tick in axis.ticks])


def parameter_scale(values: Sequence[Any], start: float, end: float) -> ParameterScale:
    """Return a scale of a parameter's values, whatever they are."""
    if all(map(_is_number, values)):
        numbers = [float(value) for value in values]
        different = sorted(set(numbers))
        if len(different) > 1:
            scale = number_scale(numbers, start, end)
            exact = [(scale.place(value), f"{value:.4g}") for value in different]
            return replace(scale, labels=exact) if len(different) <= _FEW else scale
    names = sorted({value_text(value) for value in values})
    gap = (end - start) / (len(names) + 1)
    places = {name: start + gap * number for number, name in enumerate(names, start=1)}
    shown = list(places.items())[:: 1 + len(places) // (_MOST_CHOICES + 1)]
    return ParameterScale(
        place=lambda value: places[value_text(value)], labels=[(at, name) for name, at in shown]
    )


def varied_keys(points: Sequence[dict[str, Any]]) -> list[str]:
    """Return the parameters that every point has and that are not the same in all, at most `MOST_KEYS`."""
    keys = points[0] if points else {}
    everywhere = [key for key in keys if all(key in values for values in points)]
    return [key for key in everywhere if len({value_text(values[key]) for values in points}) > 1][:MOST_KEYS]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
