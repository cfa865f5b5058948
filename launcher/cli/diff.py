"""`vastrun diff`: compare two runs."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option, the_run
from vastrun.launcher.cli.output import show, width
from vastrun.launcher.commands.report import comparison_of
from vastrun.launcher.decisions.comparison import differences
from vastrun.launcher.ui.render.differences import Differences, differences_text


@click.command("diff")
@click.argument("one_name", metavar="RUN")
@click.argument("other_name", metavar="OTHER")
@json_option
@click.pass_obj
def command(app: AppContext, one_name: str, other_name: str, as_json: bool) -> None:
    """Compare RUN with OTHER: job, image, host, end and metrics.

    The metrics are the scores, and the last value of each name in metrics.jsonl.
    """
    runs = [the_run(app, name) for name in (one_name, other_name)]
    one, other = (comparison_of(app.ledger(), run, app.now()) for run in runs)
    found = differences(one, other)
    text = differences_text(one.run, other.run, found, width())
    show(Differences(runs=[run.id for run in runs], differences=found), text, as_json=as_json)
