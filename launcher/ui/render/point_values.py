"""Values of the points of a batch, shortened to what differs between rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from posixpath import commonprefix
from typing import Any

from vastrun.launcher.ui.render.table import cells

Values = Mapping[str, Any]

_MIN_ELIDED = 12
"""Minimum characters of a common prefix of a key's values to leave out."""
_BOUNDARIES = "/ =_-.,"


def value_text(value: Any) -> str:
    """Write a value of a point in short form."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def values_text(values: Values) -> str:
    """Write `lr=0.001 dim=64`: each value with the last part of its key, or all of the key if ambiguous."""
    short = [key.rpartition(".")[2] for key in values]
    return " ".join(
        f"{name if short.count(name) == 1 else key}={value_text(value)}"
        for (key, value), name in zip(values.items(), short, strict=True)
    )


def common_values(points: Sequence[Values]) -> dict[str, Any]:
    """Return the values that all points share, if they differ in others."""
    first = dict(points[0]) if points else {}
    same = {key: value for key, value in first.items() if all(_has(point, key, value) for point in points)}
    return same if len(points) > 1 and any(set(point) - set(same) for point in points) else {}


def values_column(shown: Sequence[Values], points: Sequence[Values]) -> list[str]:
    """Return a text for each row with the values in which the points differ."""
    return [values_text(values) for values in _differing(shown, points)]


def value_forms(shown: Sequence[Values], points: Sequence[Values]) -> tuple[list[str], ...]:
    """Return three lists of texts for the rows: all values, those that differ, and these without names."""
    differing = _differing(shown, points)
    bare = [", ".join(map(value_text, values.values())) for values in differing]
    return [values_text(values) for values in shown], [values_text(values) for values in differing], bare


def fitted(
    forms: Sequence[Sequence[str]], width: int | None, render: Callable[[Sequence[str], int | None], str]
) -> str:
    """Return the table with the first form of texts that fits the width; if none does, the last one is cut.

    `render`: makes the table from texts and a width.
    """
    for form in forms:
        text = render(form, None)
        if width is None or max(map(cells, text.splitlines())) <= width:
            return text
    return render(forms[-1], width)


def _differing(shown: Sequence[Values], points: Sequence[Values]) -> list[dict[str, Any]]:
    same = common_values(points)
    prefixes = {key: _prefix(key, points) for point in points for key in point if key not in same}
    return [
        {key: _elided(value, prefixes.get(key, "")) for key, value in values.items() if key not in same}
        for values in shown
    ]


def _prefix(key: str, points: Sequence[Values]) -> str:
    """Return the common prefix of a key's texts, up to a word boundary; empty if it is short."""
    texts = [point[key] for point in points if isinstance(point.get(key), str)]
    prefix = commonprefix(texts) if len(set(texts)) > 1 else ""
    prefix = prefix[: max(prefix.rfind(character) for character in _BOUNDARIES) + 1]
    return prefix if len(prefix) >= _MIN_ELIDED else ""


def _elided(value: Any, prefix: str) -> Any:
    is_elided = prefix and isinstance(value, str) and value.startswith(prefix)
    return f"…{value[len(prefix) :]}" if is_elided else value


def _has(point: Values, key: str, value: Any) -> bool:
    return key in point and type(point[key]) is type(value) and point[key] == value
