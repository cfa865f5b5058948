"""Printing of data and of errors: data on stdout, all else on stderr, without terminal control characters."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import click

from vastrun.contract.texts import hide_forms
from vastrun.launcher.core import Phase, Run, errors
from vastrun.launcher.core.verdict import EXIT_INTERRUPTED
from vastrun.launcher.gate.text import printable
from vastrun.launcher.outputs.folder import Outputs
from vastrun.launcher.ui.render.amounts import usd, wrapped

_MIN_WIDTH, _MAX_WIDTH = 60, 160
_RUN = "launcher.run"
_JOB_FILE = "launcher.job_file"


def say(text: str, *, err: bool = False) -> None:
    """Print a text, without its control characters, and without what is secret by its form."""
    click.echo(printable(hide_forms(text)), err=err)


def note(text: str) -> None:
    """Print a line on stderr."""
    say(text, err=True)


def exit_with(code: int) -> NoReturn:
    """End the command with an exit code."""
    click.get_current_context().exit(code)


def width() -> int | None:
    """Return the maximum width of tables in columns; None if stdout is not a terminal: nothing is cut."""
    if not sys.stdout.isatty():
        return None
    from vastrun.launcher.ui.screen import size

    return min(max(size(sys.stdout)[0], _MIN_WIDTH), _MAX_WIDTH)


def show(document: object, text: str, *, as_json: bool) -> None:
    """Print the command's data on stdout, as JSON or as text."""
    from vastrun.launcher.ui.document import to_text

    columns = None if as_json else width()
    say(to_text(document) if as_json else text if columns is None else wrapped(text, columns))


def set_error_run(run: Run) -> None:
    """Add the cost and log of this run to later error messages of the command."""
    click.get_current_context().meta[_RUN] = run


def set_error_job_file(job_file: Path) -> None:
    """Name this job file in later error messages about a value of the job."""
    click.get_current_context().meta[_JOB_FILE] = job_file


@contextmanager
def report_errors(ctx: click.Context) -> Iterator[None]:
    """Turn vastrun's errors and interrupts into a message and an exit code."""
    try:
        yield
    except errors.VastrunError as error:
        if ctx.params.get("debug"):
            traceback.print_exception(error)
        say("\n".join(_lines(ctx, error)), err=True)
        ctx.exit(error.exit_code)
    except SystemExit as error:  # no command of vastrun ends like this, but code that it calls may
        say(f"error: a plug-in or a library ended the command: SystemExit: {error}", err=True)
        ctx.exit(errors.VastrunError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        say("\ninterrupted", err=True)
        ctx.exit(EXIT_INTERRUPTED)


def _lines(ctx: click.Context, error: errors.VastrunError) -> list[str]:
    if isinstance(error, errors.JobFileError):
        return [f"error: {fault}" for fault in error.faults]
    job_file = ctx.meta.get(_JOB_FILE) if isinstance(error, errors.JobValueError) else None
    lines = [f"error: {job_file}: {error}" if job_file else f"error: {error}"]
    if error.__cause__ is not None and _adds_information(error.__cause__, str(error)):
        lines.append(f"cause: {type(error.__cause__).__name__}: {error.__cause__}")
    if error.hint:
        lines.append(f"try:   {error.hint}")
    run = ctx.meta.get(_RUN)
    if run is None or isinstance(error, errors.UsageError):
        return lines
    return lines + _about(ctx, run, error)


def _adds_information(cause: BaseException, message: str) -> bool:
    """Return whether the cause's text is not part of the message; for an OSError, its reason alone counts."""
    reason = (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
    return reason not in message


def _about(ctx: click.Context, run: Run, error: errors.VastrunError) -> list[str]:
    """Return lines with the run's cost so far, its log and its lease."""
    from vastrun.launcher.commands.queries import row_of, with_cost  # when a command fails
    from vastrun.launcher.ui.render.verdict import lease_line

    now, ledger = ctx.obj.now(), ctx.obj.ledger()
    row = with_cost(run, (), now)
    with suppress(errors.VastrunError):  # the ledger may be what failed
        row = row_of(ledger, ledger.get(run.id), now)
    run, log = row.run, Outputs(run).log
    lines = [f"cost:  {usd(row.usd)} for {run.id}", *([f"log:   {log}"] if log.exists() else [])]
    if isinstance(error, errors.AccountMismatchError) and row.lease is not None:
        lines.append(f"lease: {lease_line(row, now)}")
    if (
        isinstance(error, errors.StorageError | errors.AccountMismatchError)
        and run.instance_id
        and run.phase is not Phase.ENDED
    ):
        lines.append(f"then:  vastrun resume {run.id}   (the machine keeps running, limited by its lease)")
    return lines
