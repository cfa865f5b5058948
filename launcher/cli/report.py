"""`vastrun report`: write one HTML page about a run or a batch."""

from __future__ import annotations

from pathlib import Path

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.batch.results import batch_report_of
from vastrun.launcher.cli.failures import set_error_run
from vastrun.launcher.cli.options import json_option
from vastrun.launcher.cli.output import say, show
from vastrun.launcher.commands.report import report_of
from vastrun.launcher.core import Run
from vastrun.launcher.core.errors import NoSuchRunError
from vastrun.launcher.ledger.run_ids import find_run, suggestion
from vastrun.launcher.outputs.disk import disk_errors, need_space, write_file
from vastrun.launcher.outputs.store import REPORT
from vastrun.launcher.ui.documents.document import Document
from vastrun.launcher.ui.report.batch_page import batch_page_file
from vastrun.launcher.ui.report.run_page import run_page


class ReportFile(Document):
    """The page that was written."""

    file: str
    bytes: int


@click.command("report")
@click.argument("name", metavar="RUN|BATCH")
@click.option("--open", "opens", is_flag=True, help="Open it in the browser.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"File to write [{REPORT} in the outputs].",
)
@json_option
@click.pass_obj
def command(app: AppContext, name: str, opens: bool, output: Path | None, as_json: bool) -> None:
    """Write one HTML page about RUN or BATCH, and print its path.

    The page needs no network. For a run, it has the verdict with its proofs, time and cost by phase, curves,
    pictures, the error in context, machine and job. For a batch, it has the results, metric against cost,
    parameters and all curves. Each run writes its report when it ends.
    """
    run = _run_named(app, name)
    file, text = _of_batch(app, name, output) if run is None else _of_run(app, run, output)
    content = text.encode(errors="replace")
    with disk_errors(file.parent):
        need_space(file.parent, len(content))
        write_file(file, content)
    show(ReportFile(file=str(file), bytes=len(content)), str(file), as_json=as_json)
    if opens and not app.make.browse(file.resolve().as_uri()):
        say(f"cannot find a browser; open {file} in one", err=True)


def _run_named(app: AppContext, name: str) -> Run | None:
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
        if near := suggestion(name, names):
            raise NoSuchRunError(
                f"no run or batch is called '{name}'{near}", hint="vastrun batch status"
            ) from error
        raise NoSuchRunError(f"{error}, and no batch either", hint="vastrun batch status") from error
    set_error_run(run)
    return run


def _of_run(app: AppContext, run: Run, output: Path | None) -> tuple[Path, str]:
    return _place(run.out_dir, run.id, output), run_page(report_of(app.ledger(), run, app.now()))


def _of_batch(app: AppContext, name: str, output: Path | None) -> tuple[Path, str]:
    report = batch_report_of(app.ledger(), name, app.now())
    file = _place(report.batch.folder, name, output)
    return file, batch_page_file(report, file.resolve().parent)


def _place(folder: str, name: str, output: Path | None) -> Path:
    """Return the path of the page: next to the outputs, or in this folder if there are none."""
    if output is not None:
        return output
    return Path(folder) / REPORT if Path(folder).is_dir() else Path(f"{name}.html")
