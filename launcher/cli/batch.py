"""`vastrun batch`: run one job at many points, under one budget."""

from __future__ import annotations

import csv
import sys
from contextlib import closing

import click

from vastrun.contract.texts import how_many
from vastrun.launcher.api.batches import request_stop, retry_points
from vastrun.launcher.app import App
from vastrun.launcher.batch.results import results_of, row_in, states_in
from vastrun.launcher.cli import batch_submit
from vastrun.launcher.cli.background import replace_dead_drivers
from vastrun.launcher.cli.options import json_option, plain_option
from vastrun.launcher.cli.output import exit_with, note, show, width
from vastrun.launcher.core import Cause, UserRequest
from vastrun.launcher.core.errors import HeldError, UsageError
from vastrun.launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from vastrun.launcher.ledger.run_ids import LAST
from vastrun.launcher.ui.render.batch import (
    BatchDetails,
    BatchDocument,
    BatchList,
    PointDocument,
    batch_text,
    batches_table,
)
from vastrun.launcher.ui.render.batch_results import results_csv


def _newest_for_last(ctx: click.Context, _: click.Parameter, name: str | None) -> str | None:
    """Resolve `last` to the name of the newest batch, unless a batch has that name."""
    if name != LAST or ctx.resilient_parsing:
        return name
    app: App = ctx.find_root().obj
    names = [batch.name for batch in app.ledger().batches.all()]
    if not names:
        raise UsageError("there are no batches yet", hint="vastrun batch submit BATCH.yaml")
    return name if name in names else names[0]


name_argument = click.argument("name", metavar="BATCH", callback=_newest_for_last)


@click.group("batch")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Run one job at many points under one budget.

    The batch file names the job, the points (grid, list, csv or search) and the limits: docs/batch.md.
    """
    if ctx.invoked_subcommand in ("submit", "status", "watch", "results"):
        replace_dead_drivers(ctx.obj)


command.add_command(batch_submit.submit_command)


@command.command("status")
@click.argument("name", metavar="[BATCH]", required=False, callback=_newest_for_last)
@json_option
@click.pass_obj
def status_command(app: App, name: str | None, as_json: bool) -> None:
    """List the batches, or show one in detail."""
    ledger, now = app.ledger(), app.now()
    if name is None:
        rows = [row_in(ledger, batch.name, now) for batch in ledger.batches.all()]
        show(
            BatchList(batches=list(map(BatchDocument.of, rows))),
            batches_table(rows, width=width()),
            as_json=as_json,
        )
        return
    row = row_in(ledger, name, now)
    points = [
        PointDocument.fill(
            one, one.point, values=one.point.shown, waiting=one.is_waiting, runs=[run.id for run in one.runs]
        )
        for one in row.states
    ]
    document = BatchDetails.of(row, points_list=points)
    show(document, batch_text(row, app.now(), width()), as_json=as_json)


@command.command("watch")
@name_argument
@plain_option
@json_option
@click.pass_obj
def watch_command(app: App, name: str, as_json: bool) -> None:
    """Follow a batch that another launcher drives.

    Ctrl-C detaches; the batch continues.
    """
    interrupts = app.interrupts(views=True)
    screen = app.screens.of_many(app.now(), lambda: batch_submit.open_runs_of(app, name))
    lines = batch_submit.BatchLines(screen)
    ended = {state.point.id for state in states_in(app.ledger(), name) if state.verdict}
    with closing(screen), interrupts.listening():
        while True:
            row = row_in(app.ledger(), name, app.now())
            for state in row.states:
                if state.verdict is not None and state.point.id not in ended:
                    ended.add(state.point.id)
                    lines.ended(state, row.batch)
            lines.progress(row.progress, row.batch)
            if not row.is_driven or interrupts.current() is not UserRequest.NONE:
                break
            interrupts.sleep(2.0)
    batch_submit.show_results(app, row.batch, row.states, as_json=as_json)


@command.command("resume")
@name_argument
@batch_submit.early_stop_option
@batch_submit.detach_option
@plain_option
@json_option
@click.pass_obj
def resume_command(app: App, name: str, no_early_stop: bool, detach: bool, as_json: bool) -> None:
    """Continue a batch that was stopped or killed."""
    if detach and no_early_stop:
        raise click.UsageError("--no-early-stop and --detach exclude each other")
    app.driver_ledger().batches.get(name)
    app.ledger().batches.reopen(name)
    exit_with(batch_submit.drive(app, name, as_json=as_json, prunes=not no_early_stop, detach=detach))


@command.command("stop")
@name_argument
@click.pass_obj
def stop_command(app: App, name: str) -> None:
    """Stop a batch: start no further points, and stop its runs.

    Each run saves a checkpoint, its outputs are downloaded and its machine is destroyed. The launcher of
    the batch does so; without one, this command does.
    """
    ledger = app.ledger()
    asked = request_stop(ledger, name)
    note(f"asked {how_many(asked, 'run')} of {name} to stop")
    if asked and not ledger.batches.is_driven(name):
        note("no launcher drives the batch; stopping its runs from here")
        try:
            code = batch_submit.drive(app, name, as_json=False)
        except HeldError as held:  # another launcher has started since, and obeys the request
            note(f"{held}; it stops the runs")
        else:
            exit_with(code if code == EXIT_TEARDOWN_NOT_CONFIRMED else 0)


@command.command("results")
@name_argument
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print comma-separated values.")
@click.pass_obj
def results_command(app: App, name: str, as_json: bool, as_csv: bool) -> None:
    """Show the result of each point, the best first."""
    batch = app.ledger().batches.get(name)
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    states = states_in(app.ledger(), name)
    if as_csv:
        rows = results_of(states, batch.spec.objective, app.now())
        csv.writer(sys.stdout, lineterminator="\n").writerows(results_csv(rows, batch.spec))
        return
    batch_submit.show_results(app, batch, states, as_json=as_json)


@command.command("retry")
@name_argument
@click.option(
    "--cause",
    type=click.Choice([str(cause) for cause in Cause]),
    help="Retry only points that failed with this cause.",
)
@json_option
@click.pass_obj
def retry_command(app: App, name: str, cause: str | None, as_json: bool) -> None:
    """Retry the failed points, and follow the batch to its end.

    Each retry gets a new folder for its outputs.
    """
    count = retry_points(app.driver_ledger(), name, cause)
    note(f"retrying {how_many(count, 'point')} of {name}")
    exit_with(batch_submit.drive(app, name, as_json=as_json))
