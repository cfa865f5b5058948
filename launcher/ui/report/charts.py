"""Charts: curves over the steps, drawn in the browser by uPlot from data in the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vastrun.launcher.gate.metrics import Series
from vastrun.launcher.ui.render.amounts import how_many
from vastrun.launcher.ui.render.axes import count_text, wants_logarithm
from vastrun.launcher.ui.report.gpus import each_gpu, is_of_one_gpu
from vastrun.launcher.ui.report.markup import Html, data_block, element, joined
from vastrun.launcher.ui.report.page import folded, note

_MAX_UNKNOWN = 24
"""Maximum number of charts for metrics that are not in `CHARTS`."""


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
    return sum(any(name in by_name for name in chart.names) for chart in CHARTS)


def _grouped(by_name: Mapping[str, Series]) -> Iterator[tuple[Chart, Sequence[tuple[str, Series]]]]:
    """Yield each chart with its series by label."""
    for chart in CHARTS:
        drawn = [(words, by_name[name]) for name, words in chart.names.items() if name in by_name]
        if drawn:
            yield chart, drawn
    known = {name for chart in CHARTS for name in chart.names}
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
