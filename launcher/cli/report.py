"""`vastrun report`, `why`, `diff`: a page about a run or a batch, why it ended, what two runs differ in."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from vastrun.launcher.app import App
from vastrun.launcher.batch.results import batch_report_of, results_of, states_in
from vastrun.launcher.cli.options import FILE, json_option, run_argument, the_run
from vastrun.launcher.cli.output import note, set_error_run, show, width
from vastrun.launcher.commands.explanation import explain
from vastrun.launcher.commands.report import comparison_of, report_of
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import NoSuchRunError
from vastrun.launcher.decisions.comparison import Difference, Value, differences
from vastrun.launcher.gate.text import one_line
from vastrun.launcher.ledger.run_ids import find_run, suggestion
from vastrun.launcher.outputs.disk import disk_errors, need_space, write_file
from vastrun.launcher.outputs.store import REPORT
from vastrun.launcher.ui.document import Document
from vastrun.launcher.ui.render.amounts import short, table
from vastrun.launcher.ui.render.runs import ExplanationDocument
from vastrun.launcher.ui.render.why import BatchExplanation, batch_why_text, explanation_text
from vastrun.launcher.ui.report.batch_page import batch_page_file
from vastrun.launcher.ui.report.run_page import run_page


class ReportFile(Document):
    """The page that was written."""

    file: str
    bytes: int


@click.command("report")
@click.argument("name", metavar="RUN|BATCH")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.option("--output", metavar="FILE", type=FILE, help=f"File to write [{REPORT} in the outputs].")
@json_option
@click.pass_obj
def report_command(app: App, name: str, opens: bool, output: Path | None, as_json: bool) -> None:
    """Write one HTML page about RUN or BATCH, and print its path.

    The page needs no network. For a run, it has the verdict with its proofs, time and cost by phase, curves,
    pictures, the error in context, machine and job. For a batch, it has the results and all curves. Each run
    writes its report when it ends.
    """
    run = _run_named(app, name)
    if run is None:
        report = batch_report_of(app.ledger(), name, app.now())
        if output is None:
            app.driver_ledger().batches.get(name)  # else a stranger's row would say where to write
        file = _place(report.batch.folder, name, output)
        text = batch_page_file(report, file.resolve().parent)
    else:
        if output is None:
            app.driver_ledger().get(run.id)
        file, text = _place(run.out_dir, run.id, output), run_page(report_of(app.ledger(), run, app.now()))
    content = text.encode(errors="replace")
    with disk_errors(file.parent):
        need_space(file.parent, len(content))
        write_file(file, content)
    show(ReportFile(file=str(file), bytes=len(content)), str(file), as_json=as_json)
    if opens and not app.browse(file.resolve().as_uri()):
        note(f"cannot find a browser; open {file} in one")


def _run_named(app: App, name: str) -> Run | None:
    """Find the run of that name; None if it is a batch. Raises NoSuchRunError if it is neither."""
    ledger = app.ledger()
    names = [batch.name for batch in ledger.batches.all()]
    if name in names:
        return None
    try:
        run = find_run(ledger, name)
    except NoSuchRunError as error:
        if not names:
            raise
        near = suggestion(name, names)
        text = f"no run or batch is called '{name}'{near}" if near else f"{error}, and no batch either"
        raise NoSuchRunError(text, hint="vastrun batch status") from error
    set_error_run(run)
    return run


def _place(folder: str, name: str, output: Path | None) -> Path:
    """Return the path of the page: next to the outputs, or in this folder if there are none."""
    if output is not None:
        return output
    return Path(folder) / REPORT if Path(folder).is_dir() else Path(f"{name}.html")


@click.command("diff")
@click.argument("one_name", metavar="RUN")
@click.argument("other_name", metavar="OTHER")
@json_option
@click.pass_obj
def diff_command(app: App, one_name: str, other_name: str, as_json: bool) -> None:
    """Compare RUN with OTHER: job, image, host, end and metrics.

    The metrics are the scores, and the last value of each name in metrics.jsonl.
    """
    runs = [the_run(app, name) for name in (one_name, other_name)]
    one, other = (comparison_of(app.ledger(), run, app.now()) for run in runs)
    found = differences(one, other)
    text = differences_text(one.run, other.run, found, width())
    show(Differences(runs=[run.id for run in runs], differences=found), text, as_json=as_json)


class Differences(Document):
    """The differences between two runs."""

    runs: Sequence[str]
    differences: Sequence[Difference]


def differences_text(one: Run, other: Run, found: Sequence[Difference], width: int | None) -> str:
    """Write a line for each difference. `width`: columns of the terminal."""
    if not found:
        return f"{one.id} and {other.id} do not differ"
    cells = [
        (
            each.section,
            one_line(each.key),
            _shown(each.key, each.one),
            _shown(each.key, each.other),
            _change(each),
        )
        for each in found
    ]
    header = ("PART", "KEY", one.id, other.id, "CHANGE")
    return table(header, cells, right=(4,), cut=(2, 3, 1), width=width)


def _shown(key: str, value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return {"usd": "${:.3f}", "usd_per_hour": "${:.3f}"}.get(key, "{:.4g}").format(value)
    return short(one_line(str(value)), 60)


def _change(difference: Difference) -> str:
    change = difference.change
    if change is None:
        return ""
    return f"{change:+.1%}" if abs(change) < 10 else f"{change + 1:.3g}x"


@click.command("why")
@run_argument
@json_option
@click.pass_obj
def why_command(app: App, run_name: str, as_json: bool) -> None:
    """Explain why RUN ended: cause, proofs, first failing rank, stacks of a hang, what to try next.

    For the name of a batch, show the causes of its failed points, with a run for each.
    """
    ledger = app.ledger()
    run = _run_named(app, run_name)
    if run is None:
        batch, states = ledger.batches.get(run_name), states_in(ledger, run_name)
        rows = results_of(states, batch.spec.objective, app.now())
        document = BatchExplanation.of(batch, states, rows)
        show(document, batch_why_text(batch, states, rows), as_json=as_json)
        return
    explanation = explain(ledger, run, app.now())
    show(ExplanationDocument.of(explanation), explanation_text(explanation, width()), as_json=as_json)
