"""`vastrun batch`: one job at many points, under one budget."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import click

from launcher.batch.results import results_of
from launcher.cli.batching import BatchLines, Submission, drive, reads_text, show_results, states_in, submit
from launcher.cli.failures import reads
from launcher.cli.options import confirm, json_option, provider_option, yes_option
from launcher.cli.output import say, show, width
from launcher.config import load_batch
from launcher.core import Cause, Phase, UserRequest
from launcher.core.errors import UsageError
from launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED
from launcher.decisions.schedule import standing_of
from launcher.ui.render.batch import (
    BatchRow,
    batch_document,
    batch_text,
    batches_document,
    batches_table,
    results_csv,
)
from launcher.wiring import Wiring

name_argument = click.argument("name", metavar="BATCH")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the points and what they may cost. Costs nothing."
)


@click.group("batch")
def command() -> None:
    """Run one job at many points, under one budget.

    The batch file names the job, the points (grid, list, csv or search) and the limits: docs/batch.md.
    """


@command.command("submit")
@click.argument("batch_file", metavar="BATCH.yaml", type=click.Path(path_type=Path))
@provider_option
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="For the outputs [batches/BATCH]."
)
@dry_run_option
@yes_option
@json_option
@click.pass_context
def submit_command(
    ctx: click.Context,
    batch_file: Path,
    provider: str,
    out: Path | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Start a batch, or add the new points of its edited file, and follow it to its end.

    Points that ran before are not run again. Ctrl-C asks what to do; without a terminal it stops the batch.
    """
    say(f"reading {batch_file}", err=True)
    reads(batch_file)
    folder = batch_file.resolve().parent
    loaded = load_batch(
        reads_text(batch_file, "BATCH.yaml"),
        str(batch_file),
        lambda name: reads_text(folder / name, f"{batch_file.name}: {name}"),
        str(folder),
    )
    submission = Submission(provider=provider, out=out, dry_run=dry_run, yes=yes, as_json=as_json)
    ctx.exit(submit(ctx.obj, loaded.spec, loaded.points, batch_file, submission))


@command.command("status")
@click.argument("name", metavar="[BATCH]", required=False)
@json_option
@click.pass_obj
def status_command(wiring: Wiring, name: str | None, as_json: bool) -> None:
    """List the batches, or show one with its points: what ended, what runs, what was spent."""
    batches = wiring.ledger().batches
    if name is None:
        rows = [_row(wiring, batch.name) for batch in batches.all()]
        show(batches_document(rows), batches_table(rows, width=width()), as_json=as_json)
        return
    row = _row(wiring, name)
    show(batch_document(row), batch_text(row, wiring.now(), width()), as_json=as_json)


@command.command("watch")
@name_argument
@json_option
@click.pass_context
def watch_command(ctx: click.Context, name: str, as_json: bool) -> None:
    """Follow a batch that another launcher drives. Ctrl-C ends the watch, and nothing else."""
    wiring: Wiring = ctx.obj
    interrupts = wiring.interrupts(UserRequest.DETACH, UserRequest.NONE, None, True)
    screen = wiring.screen(wiring.now())
    lines, ended = BatchLines(screen), {s.point.id for s in states_in(wiring, name) if s.verdict}
    try:
        with interrupts.listening():
            while True:
                row = _row(wiring, name)
                for state in row.states:
                    if state.verdict is not None and state.point.id not in ended:
                        ended.add(state.point.id)
                        lines.ended(state, row.batch)
                lines.standing(row.standing, row.batch)
                if not row.is_driven or interrupts.current() is not UserRequest.NONE:
                    break
                interrupts.sleep(2.0)
    finally:
        screen.close()
    show_results(wiring, row.batch, row.states, as_json=as_json)


@command.command("resume")
@name_argument
@json_option
@click.pass_context
def resume_command(ctx: click.Context, name: str, as_json: bool) -> None:
    """Go on with a batch whose launcher was stopped or killed. Nothing is rented twice."""
    wiring: Wiring = ctx.obj
    wiring.ledger().batches.get(name)
    wiring.ledger().batches.reopen(name)
    ctx.exit(drive(wiring, name, as_json=as_json))


@command.command("stop")
@name_argument
@click.pass_context
def stop_command(ctx: click.Context, name: str) -> None:
    """Start nothing more; stop what runs: save checkpoints, download the outputs, destroy the machines.

    Tells the launcher that drives the batch; drives its runs to their ends when none does.
    """
    wiring: Wiring = ctx.obj
    ledger = wiring.ledger()
    ledger.batches.get(name)
    ledger.batches.ask(name, UserRequest.STOP)
    open_runs = [run for run in ledger.runs(batch=name) if run.phase is not Phase.ENDED]
    for run in open_runs:
        ledger.ask(run.id, UserRequest.STOP)
    say(f"asked {len(open_runs)} runs of {name} to stop", err=True)
    if open_runs and not ledger.batches.is_driven(name):
        code = drive(wiring, name, as_json=False)
        ctx.exit(code if code == EXIT_TEARDOWN_NOT_CONFIRMED else 0)


@command.command("results")
@name_argument
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print lines of comma-separated values.")
@click.pass_obj
def results_command(wiring: Wiring, name: str, as_json: bool, as_csv: bool) -> None:
    """Show what each point came to, the best first; also while the batch runs."""
    batch = wiring.ledger().batches.get(name)
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other")
    states = states_in(wiring, name)
    if as_csv:
        rows = results_of(states, batch.spec.objective, wiring.now())
        csv.writer(sys.stdout, lineterminator="\n").writerows(results_csv(rows, batch.spec))
        return
    show_results(wiring, batch, states, as_json=as_json)


@command.command("retry")
@name_argument
@click.option(
    "--cause", type=click.Choice([str(cause) for cause in Cause]), help="Only those that failed with it."
)
@json_option
@click.pass_context
def retry_command(ctx: click.Context, name: str, cause: str | None, as_json: bool) -> None:
    """Run the points that failed once more, each in a new folder, and follow the batch to its end."""
    wiring: Wiring = ctx.obj
    batches = wiring.ledger().batches
    batches.get(name)
    failed = [
        state.point.id
        for state in states_in(wiring, name)
        if state.has_failed and state.last is not None and cause in (None, state.last.cause)
    ]
    if not failed:
        with_it = f" with {cause}" if cause else ""
        raise UsageError(f"no point of {name} has failed{with_it}", hint=f"vastrun batch results {name}")
    batches.again(name, failed)
    say(f"{len(failed)} points of {name} are run again", err=True)
    ctx.exit(drive(wiring, name, as_json=as_json))


@command.command("rm")
@name_argument
@yes_option
@click.pass_obj
def rm_command(wiring: Wiring, name: str, yes: bool) -> None:
    """Forget a batch that has ended. Its runs, their costs and their outputs stay."""
    ledger = wiring.ledger()
    batch = ledger.batches.get(name)
    if ledger.batches.is_driven(name) or any(state.is_open for state in states_in(wiring, name)):
        raise UsageError(f"batch {name} has runs that have not ended", hint=f"vastrun batch stop {name}")
    confirm(f"forget batch {name}", yes=yes)
    former = ledger.batches.remove(name)
    say(f"forgot {name}; its runs are of {former} now, their outputs are in {batch.folder}", err=True)


def _row(wiring: Wiring, name: str) -> BatchRow:
    batches, states = wiring.ledger().batches, states_in(wiring, name)
    return BatchRow(
        batch=batches.get(name),
        states=states,
        standing=standing_of(states, batches.held_usd(name), wiring.now()),
        is_driven=batches.is_driven(name),
    )
