"""`vastrun hosts`: list the machines that were rented, and which are avoided."""

from __future__ import annotations

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option
from vastrun.launcher.cli.output import show, width
from vastrun.launcher.decisions.history import host_records
from vastrun.launcher.ui.documents.runs import Hosts
from vastrun.launcher.ui.render.hosts import hosts_table


@click.command("hosts")
@json_option
@click.pass_obj
def command(app: AppContext, as_json: bool) -> None:
    """List the machines that were rented, the worst first, and show which are avoided for now.

    One failure excludes a machine for a day, several for longer; their weight halves every week.
    """
    now = app.now()
    records = host_records(app.ledger().runs(members=True), now)
    show(Hosts(hosts=records), hosts_table(records, now, width()), as_json=as_json)
