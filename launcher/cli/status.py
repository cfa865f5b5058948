"""`vastrun status`: list the runs, or show one in detail."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import click

from vastrun.launcher.app import App
from vastrun.launcher.cli.options import json_option, maybe_run_argument, the_run
from vastrun.launcher.cli.output import show, width
from vastrun.launcher.commands.queries import RunRow, all_rows, detail_of, look_at, newest_rows
from vastrun.launcher.core import Phase
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.run_services import services_for
from vastrun.launcher.ui.render.runs import RunDetails, RunDocument, Runs, run_text, runs_table

_MAX_QUERIES, _QUERY_TIMEOUT_S = 16, 5.0
"""Machines of detached runs that a list queries, and the seconds that it waits for them."""


@click.command("status")
@maybe_run_argument
@click.option("-a", "--all", "every", is_flag=True, help="List all runs, with the user who started each.")
@json_option
@click.pass_obj
def command(app: App, run_name: str | None, every: bool, as_json: bool) -> None:
    """List the runs, open ones first; or show one RUN with its ranks and events.

    Only the newest 20 ended runs are listed; --all lists every one.

    RUN is a run's id, the first letters of one, or `last`. Showing one RUN queries its machine; a lease
    that was killed there is armed again.
    """
    if every and run_name is not None:
        raise click.UsageError("--all and RUN exclude each other")
    now = app.now()
    if run_name is None:
        ledger = app.ledger()
        rows = all_rows(ledger, now) if every else newest_rows(ledger, now, 20)  # ended ones
        more = 0 if every else max(0, ledger.count() - len(rows))
        found: dict[str, RunRow] = {}

        def query(row: RunRow) -> None:
            with suppress(VastrunError):
                services = services_for(app, row.run.provider, row.run.created_at)
                found[row.run.id] = look_at(services, row, now)[0]

        left = [row for row in rows if row.run.phase is Phase.TRAIN and row.driver is None]
        threads = [threading.Thread(target=query, args=(row,), daemon=True) for row in left[:_MAX_QUERIES]]
        for thread in threads:
            thread.start()
        until = time.monotonic() + _QUERY_TIMEOUT_S
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))
        rows = [found.get(row.run.id, row) for row in rows]
        text = runs_table(rows, now, width(), users=every, more=more)
        show(Runs(runs=list(map(RunDocument.of, rows)), more=more), text, as_json=as_json)
        return
    run = the_run(app, run_name)
    if run.phase is not Phase.ENDED:
        from vastrun.launcher.cli.job_files import note_changed_code  # slow to import: all that packs

        note_changed_code(app, run.id, run.spec_json)
    detail = detail_of(services_for(app, run.provider, run.created_at), run, now)
    show(RunDetails.of(detail), run_text(detail, now, width()), as_json=as_json)
