"""The page of a batch: its results and costs, and the curves of its runs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from urllib.parse import quote

from vastrun.contract.texts import how_many
from vastrun.launcher.batch.results import BatchReport, PointResult, batch_report_of
from vastrun.launcher.core import Run
from vastrun.launcher.core.batch import Batch
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.gate.metrics import SERIES_POINTS, Series
from vastrun.launcher.outputs.disk import IGNORE, disk_errors, need_space, write_file
from vastrun.launcher.outputs.store import PAGE_FAULTS, REPORT
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.batch_results import metric_text, same_text, value_text, values_text
from vastrun.launcher.ui.report.charts import rounded, rounded_step, wants_logarithm
from vastrun.launcher.ui.report.page import (
    Content,
    Frame,
    Html,
    badge,
    data_block,
    element,
    figures,
    joined,
    note,
    page,
    section,
    shortened,
    table,
)

_HINT = "Hover over a row or a curve to highlight both; click a column name to sort."


AddressOf = Callable[[Run], str | None]
"""Returns the address of a run's page, or None."""


def batch_page_file(report: BatchReport, folder: Path) -> str:
    """Write the page as a file in this folder, with relative links to the pages of its runs."""
    return batch_page(report, partial(_file_of, folder))


def batch_page(report: BatchReport, address_of: AddressOf, frame: Frame | None = None) -> str:
    """Write the page. `frame`: frame of a page on the web server."""
    return page(
        f"{report.batch.name} · batch",
        _header(report),
        section(
            "Results",
            element("p", _HINT, class_="chosen"),
            _table(report, address_of),
            *(note(shortened(line)) for line in same_text(report.results, report.same).splitlines()),
            name="results",
        ),
        section("Curves", _curves(report), name="curves"),
        made_at=report.made_at,
        frame=frame,
    )


def _header(report: BatchReport) -> Html:
    batch, progress, objective = report.batch, report.progress, report.batch.spec.objective
    best = report.results[0] if report.results and report.results[0].metric is not None else None
    state = "running" if progress.running or progress.waiting else "ended"
    words = f"{'lowest' if objective.goal == 'min' else 'highest'} {objective.metric}"
    budget = batch.spec.limits.usd
    return element(
        "header",
        element("p", "vastrun", element("span", f"batch on {batch.provider}", class_="id"), class_="brand"),
        element("h1", shortened(batch.name), " ", element("span", state.upper(), class_="badge calm")),
        element("p", shortened(batch.reason), class_="cause") if batch.reason else "",
        "" if best is None else element("p", "Best: ", _point_text(best, batch), class_="score"),
        figures(
            [
                (words, "" if best is None else f"{best.metric:.4g}"),
                ("spent", usd(progress.spent_usd)),
                ("budget", "" if budget is None else usd(budget)),
                ("points", f"{progress.points:,}"),
                ("succeeded", str(progress.succeeded)),
                ("pruned", str(progress.pruned or "")),
                ("failed", str(progress.failed or "")),
                ("running", str(progress.running or "")),
                ("waiting", str(progress.waiting or "")),
            ]
        ),
    )


def _table(report: BatchReport, address_of: AddressOf) -> Html:
    """Write a row for each point; a click on a column name sorts by it."""
    keys = list(dict.fromkeys(key for row in report.results for key in row.point.shown))[:10]
    metric = report.batch.spec.objective.metric
    names = ("#", *keys, "Verdict", metric, "Steps", "Time", "Cost", "Run")
    is_number = (True, *(_are_numbers(report, key) for key in keys), False, True, True, True, True, False)
    rows = [_row(row, keys, is_number, report, address_of) for row in report.results]
    return table(
        "Results",
        names,
        rows,
        right=[number for number, right in enumerate(is_number) if right],
        sorts=True,
        order=(2 + len(keys), "ascending" if report.batch.spec.objective.goal == "min" else "descending"),
        class_="results",
        scroll="tall",
    )


def _row(
    row: PointResult,
    keys: Sequence[str],
    is_number: Sequence[bool],
    report: BatchReport,
    address_of: AddressOf,
) -> Html:
    run, values = row.run, row.point.shown
    address = None if run is None else address_of(run)
    name = element("a", run.id, href=address) if run and address else run.id if run else "–"
    cells: list[tuple[Content, object]] = [
        (str(row.point.number), None),
        *(
            (shortened(value_text(values[key])) if key in values else "–", values.get(key, ""))
            for key in keys
        ),
        (badge(row.verdict, row.state), row.state),
        (metric_text(row, "–"), "" if row.metric is None else repr(row.metric)),
        (str(row.step) if run else "–", row.step if run else ""),
        (duration(row.hours * 3600) if run else "–", f"{row.hours:.6f}" if run else ""),
        (f"${row.usd:.3f}", f"{row.usd:.6f}"),
        (name, None if run else ""),
    ]
    shown = (
        element("td", content, class_="num" if right else None, data_sort=None if key is None else str(key))
        for (content, key), right in zip(cells, is_number, strict=True)
    )
    return element("tr", *shown, data_point=row.point.number, data_told=_point_text(row, report.batch))


def _are_numbers(report: BatchReport, key: str) -> bool:
    values = [row.point.shown[key] for row in report.results if key in row.point.shown]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _file_of(folder: Path, run: Run) -> str | None:
    """Return the relative path of the run's report, if it is on this computer."""
    file = Path(run.out_dir) / REPORT
    return quote(os.path.relpath(file, folder)) if file.is_file() else None


def _curves(report: BatchReport) -> Html | str:
    """Draw the curves of all runs, each with at most `SERIES_POINTS` points."""
    drawn = [row for row in report.results if row.point.id in report.curves]
    if not drawn:
        return ""
    x, lines = _on_one_axis([report.curves[row.point.id] for row in drawn])
    values = [value for line in lines for value in line if value is not None]
    order = list(reversed(range(len(drawn))))  # draw the best last, on top
    data = {
        "many": True,
        "log": wants_logarithm(values),
        "x": x,
        "curves": [lines[n] for n in order],
        "points": [drawn[n].point.number for n in order],
        "ranks": [n * 5 // len(drawn) for n in order],
    }
    words = f"{report.curve_name} over the steps of {how_many(len(drawn), 'run')}"
    plot = element("div", class_="plot", role="img", aria_label=words)
    caption = element("figcaption", words)
    figure = element(
        "figure", caption, plot, data_block("curves-data", data), data_chart="curves-data", class_="wide"
    )
    best, last = element("span", class_="key q0"), element("span", class_="key q4")
    return joined(figure, element("p", "Best fifth", best, " … last fifth", last, class_="note"))


def _on_one_axis(series: Sequence[Series]) -> tuple[list[float], list[list[float | None]]]:
    """Return common steps for all curves, at most `SERIES_POINTS`, and each curve's values there, or None."""
    steps = sorted({step for one in series for step, _ in one.points})
    size = max(1, math.ceil(len(steps) / SERIES_POINTS))
    groups = [steps[start : start + size] for start in range(0, len(steps), size)]
    place = {step: number for number, group in enumerate(groups) for step in group}
    lines: list[list[float | None]] = []
    for one in series:
        at: list[list[float]] = [[] for _ in groups]
        for step, value in one.points:
            at[place[step]].append(value)
        lines.append([rounded(fmean(values)) if values else None for values in at])
    return [rounded_step(group[-1]) for group in groups], lines


def _point_text(row: PointResult, batch: Batch) -> str:
    """Write one line about a point: number, values, metric, cost."""
    metric = f"{batch.spec.objective.metric} {metric_text(row, 'unknown')}"
    return f"#{row.point.number}  {values_text(row.point.shown)}: {metric}, {usd(row.usd)}"


def leave_report(ledger: Ledger, name: str, now: float) -> str:
    """Write the page to the batch's folder; return a line with its path or with the error, which changes
    nothing else. Empty if nothing was downloaded.
    """
    try:
        folder = Path(ledger.batches.get(name).folder)
        if not folder.is_dir() or all(entry.name == IGNORE for entry in folder.iterdir()):
            return ""
        text = batch_page_file(batch_report_of(ledger, name, now), folder.resolve())
        content = text.encode(errors="replace")
        with disk_errors(folder):
            need_space(folder, len(content))
            write_file(folder / REPORT, content)
    except (StorageError, *PAGE_FAULTS) as error:
        kind = "" if isinstance(error, StorageError) else f"{type(error).__name__}: "
        return f"the report of the batch was not written: {kind}{error}"
    return f"report: {folder / REPORT}"
