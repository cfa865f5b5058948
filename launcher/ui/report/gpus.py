"""Each GPU by itself: a row of small curves, on one scale a column, so that one that lags is seen."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vastrun.launcher.gate.series import Series
from vastrun.launcher.ui.report.markup import Html, element
from vastrun.launcher.ui.report.page import note, scrolled

_NAME = re.compile(r"gpu(0|[1-9][0-9]{0,2})_(load|power_w|memory_mib|temperature_c)")
_MOST_GPUS = 16
_POINTS = 60
"""Of one curve: so small a one shows no more."""
_WIDTH, _HEIGHT = 240, 40
_TOLD = "The curves of a column have one scale, from 0. Numbers: the last value, then the least to the most."


@dataclass(frozen=True, kw_only=True)
class Column:
    """A quantity of each GPU. `text`: how a value is written; `most`: the top of its scale, at least."""

    title: str
    text: str
    most: float = 1e-9


COLUMNS: Mapping[str, Column] = {
    "load": Column(title="Load", text="{:.0%}", most=1.0),
    "power_w": Column(title="Power", text="{:,.0f} W"),
    "memory_mib": Column(title="Memory", text="{:,.0f} MiB"),
    "temperature_c": Column(title="Temperature", text="{:.0f} °C"),
}
"""By the ends of their names in the metrics, as in `gpu0_load`."""


def is_of_one_gpu(name: str) -> bool:
    """Return whether a quantity of the metrics is of one of several GPUs."""
    return _NAME.fullmatch(name) is not None


def each_gpu(series: Sequence[Series]) -> Html | str:
    """Draw what the metrics tell of each of several GPUs over the steps; empty where they tell nothing."""
    by_name = {one.name: one for one in series if is_of_one_gpu(one.name)}
    numbers = sorted({int(_NAME.sub(r"\1", name)) for name in by_name})
    keys = [key for key in COLUMNS if any(f"gpu{number}_{key}" in by_name for number in numbers)]
    if not numbers:
        return ""
    columns = {key: _drawn(key, [by_name.get(f"gpu{number}_{key}") for number in numbers]) for key in keys}
    rows = [
        element("tr", element("th", number, scope="row"), *(columns[key][row] for key in keys))
        for row, number in enumerate(numbers[:_MOST_GPUS])
    ]
    titles = ("GPU", *(COLUMNS[key].title for key in keys))
    header = element("tr", *(element("th", title, scope="col") for title in titles))
    table = element("table", element("thead", header), element("tbody", *rows), class_="gpus")
    return element("div", element("h3", "Each GPU"), note(_TOLD), scrolled("Each GPU", table))


def _drawn(key: str, series: Sequence[Series | None]) -> list[Html]:
    """Return a cell for each GPU, empty where nothing is known of it."""
    known = [one for one in series if one is not None]
    column, steps = COLUMNS[key], _steps(known)
    most = max(column.most, *(one.max for one in known))
    return [
        element("td") if one is None else element("td", *_words(one, column), _curve(one, steps, most))
        for one in series
    ]


def _words(series: Series, column: Column) -> tuple[Html, Html]:
    least, most = column.text.format(series.min), column.text.format(series.max)
    reach = "" if least == most else f" {least} to {most}"
    return element("b", column.text.format(series.last)), element("small", reach)


def _curve(series: Series, steps: tuple[float, float], most: float) -> Html:
    first, last = steps
    across, up = _WIDTH / max(last - first, 1e-9), (_HEIGHT - 2) / most
    # A pixel is left for the line's own width.
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
    """Return at most `_POINTS` points, each the mean of its neighbours."""
    size = max(1, math.ceil(len(points) / _POINTS))
    groups = (points[start : start + size] for start in range(0, len(points), size))
    return [(fmean(step for step, _ in group), fmean(value for _, value in group)) for group in groups]


def _steps(series: Sequence[Series]) -> tuple[float, float]:
    """Return the first and the last step of any of them."""
    return min(one.points[0][0] for one in series), max(one.points[-1][0] for one in series)
