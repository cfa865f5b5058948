"""`vastrun cost`: what runs cost."""

from __future__ import annotations

import click

from launcher.cli.options import json_option, maybe_run_argument, the_run
from launcher.cli.output import show, width
from launcher.commands.queries import all_rows, row_of, with_bills
from launcher.ui.render.costs import costs_table
from launcher.ui.render.documents import costs_document
from launcher.wiring import Wiring


@click.command("cost")
@maybe_run_argument
@click.option("--billed", is_flag=True, help="Ask the provider what it charged (a few minutes late).")
@json_option
@click.pass_obj
def command(wiring: Wiring, run_name: str | None, billed: bool, as_json: bool) -> None:
    """Show what the runs, or one RUN, cost: hours and dollars, so far or in total."""
    now, ledger = wiring.now(), wiring.ledger()
    rows = [row_of(ledger, the_run(wiring, run_name), now)] if run_name else all_rows(ledger, now)
    if billed:
        rows = with_bills(rows, wiring.provider, now)
    show(costs_document(rows, now), costs_table(rows, now, billed=billed, width=width()), as_json=as_json)
