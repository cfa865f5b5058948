"""Charts: curves over the steps and of each GPU, drawn in the browser by uPlot from data in the page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from vastrun.contract.scores import TASK_LOSS_PREFIX
from vastrun.launcher.gate.metrics import Series
from vastrun.launcher.ui.render.amounts import how_many
from vastrun.launcher.ui.render.axes import count_text, wants_logarithm
from vastrun.launcher.ui.report.page import Html, data_block, element, folded, joined, note, table

_MAX_UNKNOWN = 24
"""Maximum number of charts for metrics that are not in `CHARTS`."""
_NAME = re.compile(r"gpu(0|[1-9][0-9]{0,2})_(load|power_w|memory_mib|temperature_c)")
_MAX_GPUS = 16
_MAX_POINTS = 60
"""Maximum points of a curve, which is small."""
_WIDTH, _HEIGHT = 240, 40
_LEGEND = "All curves of a column share a scale from 0. Numbers: the last value, then minimum to maximum."


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Metrics that are drawn together. `names`: labels by the names of metrics."""

    title: str
    names: Mapping[str, str]
    may_be_log: bool = False
    """True to start with a logarithmic axis if the values differ by a large factor."""


CHARTS: Sequence[Chart] = (
    Chart(title="Loss", names={"loss": "training", "validation_loss": "validation"}, may_be_log=True),
    Chart(title="Validation nRMSE", names={"validation_nrmse": "nRMSE"}, may_be_log=True),
    Chart(title="Learning rate", names={"lr": "rate"}),
    Chart(title="Gradient norm", names={"grad_norm": "norm"}),
    Chart(title="Speed, samples/s", names={"samples_per_s": "samples/s"}),
    Chart(title="Step time, s", names={"step_p50_s": "median", "step_p99_s": "99th percentile"}),
    Chart(title="Waiting for data, share of the time", names={"data_wait": "share"}),
    Chart(
        title="GPU load, share", names={"gpu_load": "load", "mfu": "of peak FLOP/s", "gpu_slowed": "slowed"}
    ),
    Chart(title="GPU power, W", names={"gpu_power_w": "all GPUs"}),
    Chart(title="GPU temperature, °C", names={"gpu_temperature_c": "hottest"}),
    Chart(title="Memory, MiB", names={"gpu_memory_mib": "GPU in use", "peak_memory_mib": "peak of tensors"}),
)
"""Charts in the order of the page; other metrics follow, one chart each."""


def charts(series: Sequence[Series]) -> Html:
    """Draw every series: known metrics first, then each GPU, all others folded."""
    by_name = {one.name: one for one in series if not is_of_one_gpu(one.name)}
    known: list[Html] = []
    unknown: list[Html] = []
    for number, (chart, drawn) in enumerate(_grouped(by_name)):
        figure = _figure(f"chart-{number}", chart, drawn)
        (known if number < _known(by_name) else unknown).append(figure)
    if not known:
        known, unknown = unknown, []
    rest = (
        folded(how_many(len(unknown), "more metric"), element("div", *unknown, class_="charts"))
        if unknown
        else ""
    )
    if not known:
        return joined(each_gpu(series))
    # Without scripts, the text above each curve summarizes it.
    no_script = element("noscript", note("The curves need JavaScript; their numbers are in metrics.jsonl."))
    return joined(no_script, element("div", *known, class_="charts"), each_gpu(series), rest)


def _known(by_name: Mapping[str, Series]) -> int:
    tasks = [name for name in by_name if name.startswith(TASK_LOSS_PREFIX)]
    return sum(any(name in by_name for name in chart.names) for chart in CHARTS) + (len(tasks) > 1)


def _grouped(by_name: Mapping[str, Series]) -> Iterator[tuple[Chart, Sequence[tuple[str, Series]]]]:
    """Yield each chart with its series by label."""
    for chart in CHARTS:
        drawn = [(words, by_name[name]) for name, words in chart.names.items() if name in by_name]
        if drawn:
            yield chart, drawn
    tasks = {name: by_name[name] for name in by_name if name.startswith(TASK_LOSS_PREFIX)}
    if tasks:
        labelled = [(name.removeprefix(TASK_LOSS_PREFIX), one) for name, one in tasks.items()]
        yield Chart(title="Loss by task", names={}, may_be_log=True), labelled[:_MAX_UNKNOWN]
    known = {name for chart in CHARTS for name in chart.names} | tasks.keys()
    for name in [name for name in by_name if name not in known][:_MAX_UNKNOWN]:
        yield Chart(title=name, names={}, may_be_log=True), [(name, by_name[name])]


def _figure(name: str, chart: Chart, drawn: Sequence[tuple[str, Series]]) -> Html:
    values = [value for _, series in drawn for _, value in series.points]
    data = {
        "log": chart.may_be_log and wants_logarithm(values),
        "series": [
            {
                "name": words,
                "x": [_rounded(x) for x, _ in one.points],
                "y": [rounded(y) for _, y in one.points],
            }
            for words, one in drawn
        ],
    }
    summary = "; ".join(_summary(words if len(drawn) > 1 else "", series) for words, series in drawn)
    caption = element("figcaption", element("strong", chart.title), " ", element("span", summary))
    plot = element("div", class_="plot", role="img", aria_label=f"{chart.title}: {summary}")
    return element("figure", caption, plot, data_block(name, data), class_="chart", data_chart=name)


def _summary(words: str, series: Series) -> str:
    """Describe the curve in words, for readers who cannot see it."""
    parts = [f"{series.last:.4g} at step {count_text(series.points[-1][0])}"]
    if series.min != series.max:
        parts.append(f"{series.min:.4g} to {series.max:.4g}")
    if series.lost:
        parts.append(f"not finite at {len(series.lost)} steps from {count_text(series.lost[0])} on")
    if series.averaged > 1:
        parts.append(f"points are means of {series.averaged}")
    return f"{words} {', '.join(parts)}".strip()


def rounded(value: float) -> float:
    """Round to the digits that a screen shows: the page becomes a third smaller."""
    return float(f"{value:.4g}")


def _rounded(step: float) -> float:
    return int(step) if step == int(step) else round(step, 1)


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
    drawn = table("Each GPU", titles, rows, class_="gpus")
    return element("div", element("h3", "Each GPU"), note(_LEGEND), drawn)


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
