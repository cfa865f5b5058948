"""Pictures of a batch: metric against cost, parallel coordinates, curves of its runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from vastrun.launcher.batch.results import BatchReport, PointResult
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.gate.metrics import SERIES_POINTS, Series
from vastrun.launcher.ui.render.amounts import usd
from vastrun.launcher.ui.render.axes import Axis, linear, logarithmic, wants_logarithm
from vastrun.launcher.ui.render.batch_results import metric_text, value_text, values_text
from vastrun.launcher.ui.report.charts import rounded, rounded_step
from vastrun.launcher.ui.report.page import Html, data_block, element, joined, note, scrolled

_WIDTH, _HEIGHT = 1056, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 84, 24, 16, 52
_MAX_OPAQUE = 150
"""Number of lines above which each is drawn fainter, because they hide one another."""
_SHADES = 5
"""Number of shades, from the best fifth of the points to the worst."""
_MAX_NAME_CHARACTERS = 22


def scatter(report: BatchReport) -> Html | str:
    """Draw the metric of each point against its cost, with the Pareto front."""
    known = _known(report)
    if not any(row.usd > 0 for row in known):
        return ""
    x = number_scale([row.usd for row in known], _LEFT, _WIDTH - _RIGHT)
    y = number_scale([_metric(row) for row in known], _HEIGHT - _BOTTOM, _TOP)
    front = {point.id for point in report.front}
    line = [f"{x.place(point.usd):.1f},{y.place(point.metric):.1f}" for point in report.front]
    ordered = sorted(known, key=lambda row: row.point.id in front)
    dots = [_dot(row, x, y, is_front=row.point.id in front) for row in ordered]
    words = f"{report.batch.spec.objective.metric} against dollars of {len(known)} points"
    picture = element(
        "svg",
        element("title", words),
        *_grid(x, y, "dollars", report.batch.spec.objective.metric),
        element("polyline", points=" ".join(line), class_="front-line") if len(line) > 1 else "",
        element("g", *dots),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="picture",
        role="img",
    )
    legend = note("The line joins the succeeded points that no other point beats in both metric and cost.")
    return element("figure", scrolled(words, picture), legend)


def parallel(report: BatchReport) -> Html | str:
    """Draw each point as a line through its parameters to its metric, better ones in stronger colours."""
    known = _known(report)
    keys = varied_keys([dict(row.point.shown) for row in known])
    if not keys or len(known) < 2:
        return ""
    top, bottom = _TOP + 26, _HEIGHT - _TOP
    scales = [parameter_scale([row.point.shown[key] for row in known], bottom, top) for key in keys]
    scales.append(number_scale([_metric(row) for row in known], bottom, top))
    gap = (_WIDTH - 2 * _LEFT) / len(keys)
    places = [_LEFT + gap * number for number in range(len(scales))]
    ways = []
    for rank, row in reversed(list(zip(shade_numbers(len(known)), known, strict=True))):
        values = [*(row.point.shown[key] for key in keys), _metric(row)]
        downs = (scale.place(value) for scale, value in zip(scales, values, strict=True))
        line = " ".join(f"{across:.0f},{down:.1f}" for across, down in zip(places, downs, strict=True))
        ways.append(element("polyline", points=line, class_=f"way q{rank}", data_point=row.point.number))
    names = [*keys, report.batch.spec.objective.metric]
    words = f"Parameters and {names[-1]} of {len(known)} points"
    picture = element(
        "svg",
        element("title", words),
        element("g", *ways, class_="many" if len(ways) > _MAX_OPAQUE else None),
        *(
            _axis(at, name, scale, is_last=name == names[-1])
            for at, name, scale in zip(places, names, scales, strict=True)
        ),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        class_="picture",
        role="img",
    )
    return element("figure", scrolled(words, picture), shades())


def curves(report: BatchReport) -> Html | str:
    """Draw the curves of all runs, each with at most `POINTS` points."""
    drawn = [row for row in report.results if row.point.id in report.curves]
    if not drawn:
        return ""
    x, lines = on_one_axis([report.curves[row.point.id] for row in drawn])
    values = [value for line in lines for value in line if value is not None]
    order = list(reversed(range(len(drawn))))  # draw the best last, on top
    shade = shade_numbers(len(drawn))
    data = {
        "many": True,
        "log": min(values) > 0 and max(values) / min(values) > 20,
        "x": x,
        "curves": [lines[n] for n in order],
        "points": [drawn[n].point.number for n in order],
        "ranks": [shade[n] for n in order],
    }
    words = f"{report.curve_name} over the steps of {len(drawn)} runs"
    plot = element("div", class_="plot", role="img", aria_label=words)
    caption = element("figcaption", words)
    figure = element(
        "figure", caption, plot, data_block("curves-data", data), data_chart="curves-data", class_="wide"
    )
    return joined(figure, shades())


def on_one_axis(series: Sequence[Series]) -> tuple[list[float], list[list[float | None]]]:
    """Return common steps for all curves, at most `POINTS`, and each curve's values there, or None."""
    steps = sorted({step for one in series for step, _ in one.points})
    size = max(1, math.ceil(len(steps) / SERIES_POINTS))
    groups = [steps[start : start + size] for start in range(0, len(steps), size)]
    place = {step: number for number, group in enumerate(groups) for step in group}
    return [rounded_step(group[-1]) for group in groups], [
        _at_places(one, place, len(groups)) for one in series
    ]


def _at_places(series: Series, place: Mapping[float, int], many: int) -> list[float | None]:
    at: list[list[float]] = [[] for _ in range(many)]
    for step, value in series.points:
        at[place[step]].append(value)
    return [rounded(fmean(values)) if values else None for values in at]


def shade_numbers(count: int) -> list[int]:
    """Return the shade of each of `count` points, the best first."""
    return [number * _SHADES // count for number in range(count)]


def point_text(row: PointResult, batch: Batch) -> str:
    """Write one line about a point: number, values, metric, cost."""
    metric = f"{batch.spec.objective.metric} {metric_text(row, 'unknown')}"
    return f"#{row.point.number}  {values_text(row.point.shown)}: {metric}, {usd(row.usd)}"


def shades() -> Html:
    """Write the legend of the shades."""
    best, last = element("span", class_="key q0"), element("span", class_="key q4")
    return element("p", "Best fifth", best, " … last fifth", last, class_="note")


def _known(report: BatchReport) -> list[PointResult]:
    """Return the points with a finite metric, the best first."""
    return [row for row in report.results if row.metric is not None and math.isfinite(row.metric)]


def _metric(row: PointResult) -> float:
    assert row.metric is not None
    return row.metric


def _dot(row: PointResult, x: ParameterScale, y: ParameterScale, *, is_front: bool) -> Html:
    return element(
        "circle",
        cx=f"{x.place(row.usd):.1f}",
        cy=f"{y.place(_metric(row)):.1f}",
        r=6 if is_front else 4,
        class_="dot front" if is_front else "dot",
        data_point=row.point.number,
    )


def _axis(at: float, name: str, scale: ParameterScale, *, is_last: bool) -> Html:
    """Draw a vertical axis with its name on top and its values next to it."""
    text_x, anchor = (at + 8, "start") if is_last else (at - 8, "end")
    name = name if len(name) <= _MAX_NAME_CHARACTERS else f"…{name[-_MAX_NAME_CHARACTERS + 1 :]}"
    return element(
        "g",
        element("line", x1=f"{at:.0f}", x2=f"{at:.0f}", y1=_TOP + 20, y2=_HEIGHT - _TOP, class_="axis"),
        element("text", name, x=f"{at:.0f}", y=_TOP, text_anchor="middle", class_="title"),
        *(
            element("text", words, x=f"{text_x:.0f}", y=f"{place + 4:.1f}", text_anchor=anchor, class_="halo")
            for place, words in scale.labels
        ),
    )


def _grid(x: ParameterScale, y: ParameterScale, x_name: str, y_name: str) -> list[Html]:
    bottom, right, middle = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT, (_TOP + _HEIGHT - _BOTTOM) / 2
    parts = []
    for at, words in y.labels:
        parts.append(element("line", x1=_LEFT, x2=right, y1=f"{at:.1f}", y2=f"{at:.1f}", class_="grid"))
        parts.append(element("text", words, x=_LEFT - 8, y=f"{at + 4:.1f}", text_anchor="end"))
    for at, words in x.labels:
        parts.append(element("line", x1=f"{at:.1f}", x2=f"{at:.1f}", y1=bottom, y2=bottom + 5, class_="axis"))
        parts.append(element("text", f"${words}", x=f"{at:.1f}", y=bottom + 20, text_anchor="middle"))
    parts.append(element("line", x1=_LEFT, x2=right, y1=bottom, y2=bottom, class_="axis"))
    parts.append(
        element("text", x_name, x=(_LEFT + right) / 2, y=_HEIGHT - 8, text_anchor="middle", class_="title")
    )
    turned = f"rotate(-90 18 {middle:.0f})"
    parts.append(
        element(
            "text", y_name, x=18, y=f"{middle:.0f}", text_anchor="middle", transform=turned, class_="title"
        )
    )
    return parts


MAX_KEYS = 8
"""Maximum number of parameters in the picture."""
_MAX_CHOICES = 12
"""Maximum number of labels of an axis of names."""
_MAX_EXACT = 6
"""Maximum number of different values that are all labelled exactly."""
_MAX_NUMBER = 1e300


@dataclass(frozen=True, kw_only=True)
class ParameterScale:
    """Map from the values of a parameter to positions in the picture."""

    place: Callable[[Any], float]
    labels: Sequence[tuple[float, str]]
    """Positions with their labels."""


def number_scale(values: Sequence[float], start: float, end: float) -> ParameterScale:
    """Return a scale of numbers, logarithmic if they differ by a large factor."""
    axis: Axis = (logarithmic if wants_logarithm(values) else linear)(min(values), max(values), start, end)
    return ParameterScale(place=axis.place, labels=[(axis.place(tick), f"{tick:.4g}") for tick in axis.ticks])


def parameter_scale(values: Sequence[Any], start: float, end: float) -> ParameterScale:
    """Return a scale of a parameter's values: of numbers, else of names."""
    if all(map(_is_number, values)):
        numbers = [float(value) for value in values]
        different = sorted(set(numbers))
        if len(different) > 1:
            scale = number_scale(numbers, start, end)
            exact = [(scale.place(value), f"{value:.4g}") for value in different]
            return replace(scale, labels=exact) if len(different) <= _MAX_EXACT else scale
    names = sorted({value_text(value) for value in values})
    gap = (end - start) / (len(names) + 1)
    places = {name: start + gap * number for number, name in enumerate(names, start=1)}
    shown = list(places.items())[:: 1 + len(places) // (_MAX_CHOICES + 1)]
    return ParameterScale(
        place=lambda value: places[value_text(value)], labels=[(at, name) for name, at in shown]
    )


def varied_keys(points: Sequence[dict[str, Any]]) -> list[str]:
    """Return the parameters that every point has and that differ, at most `MAX_KEYS`."""
    keys = points[0] if points else {}
    everywhere = [key for key in keys if all(key in values for values in points)]
    return [key for key in everywhere if len({value_text(values[key]) for values in points}) > 1][:MAX_KEYS]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER
