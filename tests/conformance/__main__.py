"""`python -m tests.conformance`: compare Vast's live service with what vastrun assumes of it."""

import os
import time
from pathlib import Path

import click

from tests.conformance.examination import conformance_job, rent, settle
from vastrun.launcher.cli.options import set_option
from vastrun.launcher.cli.output import report_errors


@click.command("python -m tests.conformance")
@click.option("--usd", type=click.FloatRange(0.01, 100), default=0.25, help="Spend at most this [0.25].")
@set_option
@click.option(
    "--settle",
    "settle_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Add the charges to FILE; available after 15 minutes. Rents nothing.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.pass_context
def command(
    ctx: click.Context, usd: float, sets: tuple[str, ...], settle_file: Path | None, yes: bool
) -> None:
    """Rent a machine on Vast for at most ten minutes, run 20 steps there, and compare each assumption about
    Vast with what is seen.

    Exit code 0 if all agree, 12 if one deviates.

    \b
      python -m tests.conformance
      python -m tests.conformance --settle conformance-RUN.json
    """
    with report_errors(ctx):
        if settle_file is not None:
            ctx.exit(settle(os.environ, settle_file))
        ctx.exit(rent(os.environ, conformance_job(usd, sets, time.time()), yes=yes))


if __name__ == "__main__":
    command()
