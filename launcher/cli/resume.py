"""`vastrun resume`: continue a run whose launcher was killed or detached."""

from __future__ import annotations

from pathlib import Path

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.background import check_unused, hand_over_run
from vastrun.launcher.cli.drive import drive_to_end, show_end
from vastrun.launcher.cli.options import json_option, plain_option, run_argument, the_run
from vastrun.launcher.cli.output import say
from vastrun.launcher.commands.attempts import Attempts
from vastrun.launcher.core import Run


@click.command("resume")
@run_argument
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Download its outputs into another folder."
)
@click.option("-d", "--detach", is_flag=True, help="Detach at once; a background driver continues.")
@plain_option
@json_option
@click.pass_context
def command(ctx: click.Context, run_name: str, out: Path | None, detach: bool, as_json: bool) -> None:
    """Continue RUN after its launcher was killed or detached, also between two attempts.

    Fails while another launcher drives it.
    """
    app: AppContext = ctx.obj
    run = the_run(app, run_name)
    if detach:
        if out is not None:
            raise click.UsageError("--out and --detach exclude each other")
        check_unused(app, run)
        if notice := hand_over_run(app, run):
            show_end(app, run, as_json=as_json)
            say(f"\n{notice}", err=True)
            return

    def work(attempts: Attempts) -> Run:
        return attempts.resume(run, None if out is None else str(out.resolve()))

    ctx.exit(drive_to_end(app, work, began=run.created_at, as_json=as_json))
