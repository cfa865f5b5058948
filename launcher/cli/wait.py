"""`vastrun wait`: wait until a run ends; the exit code is its verdict."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.drive import drive_to_end
from vastrun.launcher.cli.options import json_option, run_argument, seconds, the_run
from vastrun.launcher.core import UserRequest


@click.command("wait")
@run_argument
@click.option(
    "--timeout",
    type=seconds,
    metavar="TIME",
    help="Give up after this time (90s, 10m, 2h), with exit code 124.",
)
@json_option
@click.pass_context
def command(ctx: click.Context, run_name: str, timeout: float | None, as_json: bool) -> None:
    """Wait until RUN ends; its verdict is the exit code. Drives it if no launcher does. Ctrl-C detaches."""
    app: AppContext = ctx.obj
    run = the_run(app, run_name)
    until = None if timeout is None else app.now() + timeout
    code = drive_to_end(
        app,
        lambda attempts: attempts.drive_or_follow(run),
        began=run.created_at,
        as_json=as_json,
        first=UserRequest.DETACH,
        until=until,
        views=True,
    )
    ctx.exit(code)
