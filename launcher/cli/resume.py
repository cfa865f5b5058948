"""`vastrun resume`: go on with a run whose launcher was killed."""

from __future__ import annotations

from pathlib import Path

import click

from launcher.cli.driving import drive_to_end
from launcher.cli.options import json_option, plain_option, run_argument, the_run
from launcher.commands.attempts import Attempts
from launcher.core import Run
from launcher.wiring import Wiring


@click.command("resume")
@run_argument
@click.option(
    "--out", metavar="DIR", type=click.Path(path_type=Path), help="Download its outputs into another folder."
)
@plain_option
@json_option
@click.pass_context
def command(ctx: click.Context, run_name: str, out: Path | None, as_json: bool) -> None:
    """Continue driving RUN after its launcher was killed or detached, also between two attempts.

    Refused while another launcher drives it.
    """
    wiring: Wiring = ctx.obj
    run = the_run(wiring, run_name)

    def work(attempts: Attempts) -> Run:
        return attempts.resume(run, None if out is None else str(out.resolve()))

    ctx.exit(drive_to_end(wiring, work, began=run.created_at, as_json=as_json))
