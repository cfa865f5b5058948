"""Charts: curves over the steps and of each GPU, drawn in the browser by uPlot from data in the page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import fmean

from vastrun.contract.reports import TASK_LOSS_PREFIX
from vastrun.contract.texts import how_many
from vastrun.launcher.gate.metrics import Series
from vastrun.launcher.ui.report.page import Html, data_block, element, folded, joined, note

_MAX_UNKNOWN = 24
"""Maximum number of charts for metrics that are not in `CHARTS`."""
_OF_ONE_GPU = re.compile(r"gpu(0|[1-9][0-9]{0,2})_(load|power_w|memory_mib|temperature_c)")


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Metrics that are drawn together. `names`: labels by the names of metrics."""

    title: str
    names: Mapping[str, str]
    may_be_log: bool = False
    """True to start with a logarithmic axis if the values differ by a large factor."""
    is_each_gpu: bool = False
    """True for a line for each GPU, of which only the last values are written above."""


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
_EACH_GPU = {
    "load": "Load of each GPU, share",
    "power_w": "Power of each GPU, W",
    "memory_mib": "Memory of each GPU, MiB",
    "temperature_c": "Temperature of each GPU, °C",
}
"""Titles of the charts with a line for each GPU, by the suffix of the metric, as in `gpu0_load`."""
_Drawn = tuple[Chart, Sequence[tuple[str, Series]]]


def charts(series: Sequence[Series]) -> Html:
    """Draw every series: known metrics first, then each GPU, all others folded."""
    by_name = {one.name: one for one in series}
    known, unknown = list(_known(by_name)), list(_unknown(by_name))
    figures = [_figure(f"chart-{n}", chart, drawn) for n, (chart, drawn) in enumerate(known + unknown)]
    shown, more = (figures[: len(known)], figures[len(known) :]) if known else (figures, [])
    if not shown:
        return joined()
    # Without scripts, the text above each curve summarizes it.
    no_script = element("noscript", note("The curves need JavaScript; their numbers are in metrics.jsonl."))
    rest = folded(how_many(len(more), "more metric"), element("div", *more, class_="charts")) if more else ""
    return joined(no_script, element("div", *shown, class_="charts"), rest)


def _known(by_name: Mapping[str, Series]) -> Iterator[_Drawn]:
    """Yield the charts of known metrics, each with its series by label."""
    for chart in CHARTS:
        if drawn := [(words, by_name[name]) for name, words in chart.names.items() if name in by_name]:
            yield chart, drawn
    tasks = [(name.removeprefix(TASK_LOSS_PREFIX), by_name[name]) for name in _tasks(by_name)]
    if len(tasks) > 1:
        yield Chart(title="Loss by task", names={}, may_be_log=True), tasks[:_MAX_UNKNOWN]
    for key, title in _EACH_GPU.items():
        lines = {f"GPU {number}": by_name.get(f"gpu{number}_{key}") for number in range(16)}
        if drawn := [(words, _thinned(one)) for words, one in lines.items() if one is not None]:
            yield Chart(title=title, names={}, is_each_gpu=True), drawn


def _unknown(by_name: Mapping[str, Series]) -> Iterator[_Drawn]:
    """Yield a chart for each other metric."""
    known = {name for chart in CHARTS for name in chart.names}
    if len(tasks := _tasks(by_name)) > 1:
        known.update(tasks)
    unlisted = (name for name in by_name if name not in known and not _OF_ONE_GPU.fullmatch(name))
    for name in islice(unlisted, _MAX_UNKNOWN):
        yield Chart(title=name, names={}, may_be_log=True), [(name, by_name[name])]


def _tasks(by_name: Mapping[str, Series]) -> list[str]:
    return [name for name in by_name if name.startswith(TASK_LOSS_PREFIX)]


def _figure(name: str, chart: Chart, drawn: Sequence[tuple[str, Series]]) -> Html:
    values = [value for _, series in drawn for _, value in series.points]
    data = {
        "log": chart.may_be_log and wants_logarithm(values),
        "series": [
            {
                "name": words,
                "x": [rounded_step(x) for x, _ in one.points],
                "y": [rounded(y) for _, y in one.points],
            }
            for words, one in drawn
        ],
    }
    if chart.is_each_gpu:
        lasts = [(words, series.last) for words, series in drawn]
        summary = "; ".join(f"{words}: {f'{x:,.0f}' if x >= 100 else f'{x:.3g}'}" for words, x in lasts)
    else:
        summary = "; ".join(_summary(words if len(drawn) > 1 else "", series) for words, series in drawn)
    caption = element("figcaption", element("strong", chart.title), " ", element("span", summary))
    plot = element("div", class_="plot", role="img", aria_label=f"{chart.title}: {summary}")
    return element("figure", caption, plot, data_block(name, data), class_="chart", data_chart=name)


def _summary(words: str, series: Series) -> str:
    """Describe the curve in words, for readers who cannot see it."""
    parts = [f"{series.last:.4g} at step {_count_text(series.points[-1][0])}"]
    if series.min != series.max:
        parts.append(f"{series.min:.4g} to {series.max:.4g}")
    if series.lost:
        parts.append(f"not finite at {len(series.lost)} steps from {_count_text(series.lost[0])} on")
    if series.averaged > 1:
        parts.append(f"points are means of {series.averaged}")
    return f"{words} {', '.join(parts)}".strip()


def wants_logarithm(values: Sequence[float]) -> bool:
    """Return whether the values need a logarithmic axis, as a loss that falls by decades does."""
    return min(values) > 0 and max(values) / min(values) >= 20.0


def _count_text(steps: float) -> str:
    """Write `1,500`, `20k`, `3.5M`."""
    for min_steps, size, unit in ((1e12, 1e12, "T"), (1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if steps >= min_steps:
            return f"{steps / size:.4g}{unit}"
    return f"{steps:,.0f}"


def rounded(value: float) -> float:
    """Round to the digits that a screen shows: the page becomes a third smaller."""
    return float(f"{value:.4g}")


def rounded_step(step: float) -> float:
    """Write a whole step as such, a mean of several with one digit."""
    return int(step) if step == int(step) else round(step, 1)


def _thinned(series: Series) -> Series:
    """Return the series with at most 60 points, each a mean of neighbours."""
    size = math.ceil(len(series.points) / 60)
    groups = (series.points[start : start + size] for start in range(0, len(series.points), size))
    means = tuple((fmean(step for step, _ in group), fmean(value for _, value in group)) for group in groups)
    return replace(series, points=means)
