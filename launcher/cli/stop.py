"""`vastrun stop`: stop a run."""

from __future__ import annotations

import click

from vastrun.launcher.api.runs import request_end
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.drive import drive_to_end
from vastrun.launcher.cli.options import json_option, run_argument, the_run
from vastrun.launcher.core import UserRequest
from vastrun.launcher.core.verdict import EXIT_TEARDOWN_NOT_CONFIRMED


@click.command("stop")
@run_argument
@click.option(
    "--now", "at_once", is_flag=True, help="Destroy its machine now, without downloading the outputs."
)
@click.option("--reason", default="", help="Reason to record in the run's events.")
@json_option
@click.pass_context
def command(ctx: click.Context, run_name: str, at_once: bool, reason: str, as_json: bool) -> None:
    """Stop RUN: save a checkpoint, download the outputs, destroy the machine.

    Asks the launcher of the run to do so, and waits; without one, this command does so.
    """
    app: AppContext = ctx.obj
    run = the_run(app, run_name)
    request_end(app.ledger(), run, app.now(), at_once=at_once, reason=reason)
    code = drive_to_end(
        app,
        lambda attempts: attempts.drive_or_follow(run),
        began=run.created_at,
        as_json=as_json,
        first=UserRequest.DETACH,
    )
    ctx.exit(code if code == EXIT_TEARDOWN_NOT_CONFIRMED else 0)
