"""The page of a batch: results, costs, and the influence of parameters."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

from vastrun.launcher.batch.analysis import NOT_A_CAUSE
from vastrun.launcher.batch.results import BatchReport, PointResult, batch_report_of
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import StorageError
from vastrun.launcher.outputs.disk import IGNORE, disk_errors, need_space, write_file
from vastrun.launcher.outputs.store import PAGE_FAULTS, REPORT
from vastrun.launcher.ports import Ledger
from vastrun.launcher.ui.render.amounts import duration, usd
from vastrun.launcher.ui.render.batch_results import metric_text, same_text, value_text
from vastrun.launcher.ui.report.batch_pictures import curves, parallel, point_text, scatter
from vastrun.launcher.ui.report.page import (
    Content,
    Frame,
    Html,
    badge,
    element,
    figures,
    joined,
    note,
    page,
    section,
    shortened,
    table,
)

_HINT = "Hover over a row, a dot or a line to highlight it in all pictures; click a column name to sort."
_MAX_KEYS = 10
"""Maximum number of parameters with a column."""
_STATES = {True: "running", False: "waiting"}


AddressOf = Callable[[Run], str | None]
"""Returns the address of a run's page, or None."""


def batch_page_file(report: BatchReport, folder: Path) -> str:
    """Write the page as a file in this folder, with relative links to the pages of its runs."""
    return batch_page(report, partial(_file_of, folder))


def batch_page(report: BatchReport, address_of: AddressOf, frame: Frame | None = None) -> str:
    """Write the page. `frame`: frame of a page on the web server."""
    metric = report.batch.spec.objective.metric
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
        section(f"{metric} against dollars", scatter(report), name="dollars"),
        section("Parameters", parallel(report), _influences(report), name="parameters"),
        section("Curves", curves(report), name="curves"),
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
        "" if best is None else element("p", "Best: ", point_text(best, batch), class_="score"),
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
    keys = list(dict.fromkeys(key for row in report.results for key in row.point.shown))[:_MAX_KEYS]
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
    cells: list[tuple[Content, object]] = [
        (str(row.point.number), None),
        *(
            (shortened(value_text(values[key])) if key in values else "–", values.get(key, ""))
            for key in keys
        ),
        (badge(row.verdict, _state(row)), _state(row)),
        (metric_text(row, "–"), "" if row.metric is None else repr(row.metric)),
        (str(row.step) if run else "–", row.step if run else ""),
        (duration(row.hours * 3600) if run else "–", f"{row.hours:.6f}" if run else ""),
        (f"${row.usd:.3f}", f"{row.usd:.6f}"),
        ("–" if run is None else _linked(run, address_of), None if run else ""),
    ]
    shown = (
        element("td", content, class_="num" if right else None, data_sort=None if key is None else str(key))
        for (content, key), right in zip(cells, is_number, strict=True)
    )
    return element("tr", *shown, data_point=row.point.number, data_told=point_text(row, report.batch))


def _are_numbers(report: BatchReport, key: str) -> bool:
    values = [row.point.shown[key] for row in report.results if key in row.point.shown]
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _state(row: PointResult) -> str:
    return str(row.verdict) if row.verdict else _STATES[row.run is not None]


def _linked(run: Run, address_of: AddressOf) -> Html | str:
    """Write the run's id, as a link if it has a page."""
    address = address_of(run)
    return run.id if address is None else element("a", run.id, href=address)


def _file_of(folder: Path, run: Run) -> str | None:
    """Return the relative path of the run's report, if it is on this computer."""
    file = Path(run.out_dir) / REPORT
    return quote(os.path.relpath(file, folder)) if file.is_file() else None


def _influences(report: BatchReport) -> Html | str:
    """List the parameters that correlate with the metric."""
    if not report.influences:
        return ""
    lines = [element("li", shortened(str(one))) for one in report.influences[:8]]
    return joined(
        element("h3", "Correlation with the metric"), element("ul", *lines), note(f"It is {NOT_A_CAUSE}.")
    )


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
    except PAGE_FAULTS as fault:
        return f"the report of the batch was not written: {type(fault).__name__}: {fault}"
    except StorageError as error:
        return f"the report of the batch was not written: {error}"
    return f"report: {folder / REPORT}"
