"""Charts: curves over the steps, drawn in the browser by uPlot from data in the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vastrun.launcher.gate.series import Series
from vastrun.launcher.ui.render.amounts import how_many
from vastrun.launcher.ui.render.axes import count_text, wants_logarithm
from vastrun.launcher.ui.report.gpus import each_gpu, is_of_one_gpu
from vastrun.launcher.ui.report.markup import Html, data_block, element, joined
from vastrun.launcher.ui.report.page import folded, note

_MOST_OTHERS = 24


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Quantities that are drawn together. `names`: as the metrics have them, each with its words."""

    title: str
    names: Mapping[str, str]
    may_be_log: bool = False
    """Drawn on a logarithmic axis where its values differ by much; its reader may change that."""


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
"""In the order of the page. What else the metrics tell follows, each by itself."""


def charts(series: Sequence[Series]) -> Html:
    """Draw every series: the known quantities first, then each GPU, all others below a fold."""
    by_name = {one.name: one for one in series if not is_of_one_gpu(one.name)}
    known: list[Html] = []
    others: list[Html] = []
    for number, (chart, drawn) in enumerate(_grouped(by_name)):
        figure = _figure(f"chart-{number}", chart, drawn)
        (known if number < _known(by_name) else others).append(figure)
    if not known:
        known, others = others, []
    rest = (
        folded(how_many(len(others), "more metric"), element("div", *others, class_="charts"))
        if others
        else ""
    )
    if not known:
        return joined(each_gpu(series))
    # Without scripts: the words above each curve say what it shows.
    unseen = element("noscript", note("The curves need JavaScript; their numbers are in metrics.jsonl."))
    return joined(unseen, element("div", *known, class_="charts"), each_gpu(series), rest)


def _known(by_name: Mapping[str, Series]) -> int:
    return sum(any(name in by_name for name in chart.names) for chart in CHARTS)


def _grouped(by_name: Mapping[str, Series]) -> Iterator[tuple[Chart, Sequence[tuple[str, Series]]]]:
    """Yield each chart with its series by their words."""
    for chart in CHARTS:
        drawn = [(words, by_name[name]) for name, words in chart.names.items() if name in by_name]
        if drawn:
            yield chart, drawn
    known = {name for chart in CHARTS for name in chart.names}
    for name in [name for name in by_name if name not in known][:_MOST_OTHERS]:
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
    told = "; ".join(_summary(words if len(drawn) > 1 else "", series) for words, series in drawn)
    caption = element("figcaption", element("strong", chart.title), " ", element("span", told))
    plot = element("div", class_="plot", role="img", aria_label=f"{chart.title}: {told}")
    return element("figure", caption, plot, data_block(name, data), class_="chart", data_chart=name)


def _summary(words: str, series: Series) -> str:
    """Say in words what the curve shows, for those who do not see it."""
    parts = [f"{series.last:.4g} at step {count_text(series.points[-1][0])}"]
    if series.min != series.max:
        parts.append(f"{series.min:.4g} to {series.max:.4g}")
    if series.lost:
        parts.append(f"not finite at {len(series.lost)} steps from {count_text(series.lost[0])} on")
    if series.averaged > 1:
        parts.append(f"points are means of {series.averaged}")
    return f"{words} {', '.join(parts)}".strip()


def rounded(value: float) -> float:
    """Return the value with as many digits as a screen shows: a page is a third smaller."""
    return float(f"{value:.4g}")


def _rounded(step: float) -> float:
    return int(step) if step == int(step) else round(step, 1)
