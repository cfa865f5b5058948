"""Metrics of each GPU: rows of small curves with one scale per column, so that a slow GPU stands out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vastrun.launcher.gate.metrics import Series
from vastrun.launcher.ui.report.markup import Html, element
from vastrun.launcher.ui.report.page import note, scrolled

_NAME = re.compile(r"gpu(0|[1-9][0-9]{0,2})_(load|power_w|memory_mib|temperature_c)")
_MAX_GPUS = 16
_MAX_POINTS = 60
"""Maximum points of a curve, which is small."""
_WIDTH, _HEIGHT = 240, 40
_LEGEND = "All curves of a column share a scale from 0. Numbers: the last value, then minimum to maximum."


@dataclass(frozen=True, kw_only=True)
class Column:
    """A metric of each GPU. `text`: format of a value; `min_top`: minimum for the top of the scale."""

    title: str
    text: str
    min_top: float = 1e-9


COLUMNS: Mapping[str, Column] = {
    "load": Column(title="Load", text="{:.0%}", min_top=1.0),
    "power_w": Column(title="Power", text="{:,.0f} W"),
    "memory_mib": Column(title="Memory", text="{:,.0f} MiB"),
    "temperature_c": Column(title="Temperature", text="{:.0f} °C"),
}
"""Columns by the suffix of the metric, as in `gpu0_load`."""


def is_of_one_gpu(name: str) -> bool:
    """Return whether a metric is about one of several GPUs."""
    return _NAME.fullmatch(name) is not None


def each_gpu(series: Sequence[Series]) -> Html | str:
    """Draw the metrics of each of several GPUs over the steps; empty without such metrics."""
    by_name = {one.name: one for one in series if is_of_one_gpu(one.name)}
    numbers = sorted({int(_NAME.sub(r"\1", name)) for name in by_name})
    keys = [key for key in COLUMNS if any(f"gpu{number}_{key}" in by_name for number in numbers)]
    if not numbers:
        return ""
    columns = {key: _drawn(key, [by_name.get(f"gpu{number}_{key}") for number in numbers]) for key in keys}
    rows = [
        element("tr", element("th", number, scope="row"), *(columns[key][row] for key in keys))
        for row, number in enumerate(numbers[:_MAX_GPUS])
    ]
    titles = ("GPU", *(COLUMNS[key].title for key in keys))
    header = element("tr", *(element("th", title, scope="col") for title in titles))
    table = element("table", element("thead", header), element("tbody", *rows), class_="gpus")
    return element("div", element("h3", "Each GPU"), note(_LEGEND), scrolled("Each GPU", table))


def _drawn(key: str, series: Sequence[Series | None]) -> list[Html]:
    """Return a cell for each GPU, empty without data."""
    known = [one for one in series if one is not None]
    column, steps = COLUMNS[key], _steps(known)
    top = max(column.min_top, *(one.max for one in known))
    return [
        element("td") if one is None else element("td", *_words(one, column), _curve(one, steps, top))
        for one in series
    ]


def _words(series: Series, column: Column) -> tuple[Html, Html]:
    low, high = column.text.format(series.min), column.text.format(series.max)
    span = "" if low == high else f" {low} to {high}"
    return element("b", column.text.format(series.last)), element("small", span)


def _curve(series: Series, steps: tuple[float, float], top: float) -> Html:
    first, last = steps
    across, up = _WIDTH / max(last - first, 1e-9), (_HEIGHT - 2) / top
    # One pixel at the top and bottom for the width of the line.
    line = " ".join(
        f"{(step - first) * across:.0f},{_HEIGHT - 1 - max(0.0, value) * up:.1f}"
        for step, value in _thinned(series.points)
    )
    rail = element("line", x1=0, x2=_WIDTH, y1=_HEIGHT - 0.5, y2=_HEIGHT - 0.5, class_="grid")
    box = f"0 0 {_WIDTH} {_HEIGHT}"
    return element(
        "svg",
        rail,
        element("polyline", points=line),
        viewBox=box,
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return at most `_MAX_POINTS` points, each a mean of neighbours."""
    size = max(1, math.ceil(len(points) / _MAX_POINTS))
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [(fmean(step for step, _ in group), fmean(value for _, value in group)) for group in groups]


def _steps(series: Sequence[Series]) -> tuple[float, float]:
    """Return the first and the last step of any of them."""
    return min(one.points[0][0] for one in series), max(one.points[-1][0] for one in series)
