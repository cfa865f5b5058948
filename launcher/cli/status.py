"""`vastrun status`: the runs, or one from near."""

from __future__ import annotations

import click

from launcher.cli.options import json_option, maybe_run_argument, the_run
from launcher.cli.output import show, width
from launcher.cli.watching import show_again
from launcher.commands.queries import all_rows, detail_of
from launcher.ui.render.documents import run_document, runs_document
from launcher.ui.render.runs import run_text, runs_table
from launcher.wiring import Wiring

_WATCH_LIST_S, _WATCH_RUN_S = 2.0, 5.0
"""Between two looks: the ledger is on this computer, a run's box is not."""


@click.command("status")
@maybe_run_argument
@click.option("-w", "--watch", is_flag=True, help="Show it anew every few seconds, until Ctrl-C.")
@json_option
@click.pass_obj
def command(wiring: Wiring, run_name: str | None, watch: bool, as_json: bool) -> None:
    """List the runs, open ones first; or show one RUN with its ranks and its events.

    RUN is a run's id, the first letters of one, or `last`. This looks at its box; a lease that was killed
    there is armed again.
    """
    if watch:
        if as_json:
            raise click.UsageError("--watch and --json exclude each other")
        pause_s = _WATCH_LIST_S if run_name is None else _WATCH_RUN_S
        show_again(wiring, lambda: _text(wiring, run_name), pause_s)
        return
    now = wiring.now()
    if run_name is None:
        rows = all_rows(wiring.ledger(), now)
        show(runs_document(rows), runs_table(rows, now, width()), as_json=as_json)
        return
    run = the_run(wiring, run_name)
    detail = detail_of(wiring.services_for(run.provider, run.created_at), run, now)
    show(run_document(detail), run_text(detail, now, width()), as_json=as_json)


def _text(wiring: Wiring, run_name: str | None) -> str:
    now = wiring.now()
    if run_name is None:
        return runs_table(all_rows(wiring.ledger(), now), now, width())
    run = the_run(wiring, run_name)
    return run_text(detail_of(wiring.services_for(run.provider, run.created_at), run, now), now, width())
