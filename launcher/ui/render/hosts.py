"""`hosts` in text: the record of each machine."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.decisions.history import HostRecord
from vastrun.launcher.ui.render.amounts import duration
from vastrun.launcher.ui.render.table import table

_HEADER = ("HOST", "RUNS", "FAILED", "SCORE", "LAST FAILURE", "AVOIDED", "WHAT")


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
