"""`vastrun attach`: follow a run."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.drive import drive_to_end
from vastrun.launcher.cli.options import json_option, plain_option, run_argument, the_run


@click.command("attach")
@run_argument
@plain_option
@json_option
@click.pass_context
def command(ctx: click.Context, run_name: str, as_json: bool) -> None:
    """Follow RUN to its end, and drive it if no launcher does. Ctrl-C asks to stop, detach or continue."""
    app: AppContext = ctx.obj
    run = the_run(app, run_name)
    code = drive_to_end(
        app, lambda a: a.drive_or_follow(run), began=run.created_at, as_json=as_json, views=True
    )
    ctx.exit(code)
