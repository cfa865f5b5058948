"""`vastrun hosts`: list the machines that were rented, and which are avoided."""

from __future__ import annotations

from collections.abc import Sequence

import click

from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.options import json_option
from vastrun.launcher.cli.output import show, width
from vastrun.launcher.decisions.history import HostRecord, host_records
from vastrun.launcher.ui.documents.machines import Hosts
from vastrun.launcher.ui.render.amounts import duration
from vastrun.launcher.ui.render.table import table

_HEADER = ("HOST", "RUNS", "FAILED", "SCORE", "LAST FAILURE", "AVOIDED", "WHAT")


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


def hosts_table(records: Sequence[HostRecord], now: float, width: int | None = None) -> str:
    """Write one line per machine. `width`: columns of the terminal; None: nothing is cut."""
    if not records:
        return "no paid machine was rented yet"
    cells = [
        (
            record.host,
            str(record.runs),
            str(record.failures),
            f"{record.score:.2f}",
            _last_failure(record, now),
            "yes" if record.avoided else "no",
            record.description,
        )
        for record in records
    ]
    return table(_HEADER, cells, right=(1, 2, 3), cut=(6, 0, 4), width=width)


def _last_failure(record: HostRecord, now: float) -> str:
    if record.last_failure_at is None:
        return "-"
    return f"{record.last_cause}, {duration(now - record.last_failure_at)}"
