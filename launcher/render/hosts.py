"""`hosts` in text: what became of the runs on each machine."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.hosts import HostRecord
from launcher.render.amounts import duration
from launcher.render.table import short, table

_HEADER = ("HOST", "RUNS", "FAILED", "SCORE", "LAST FAILURE", "AVOIDED", "WHAT")


def hosts_table(records: Sequence[HostRecord], now: float) -> str:
    """One line a machine."""
    if not records:
        return "no machine was rented for money yet"
    cells = [
        (
            short(record.host, 16),
            str(record.runs),
            str(record.failures),
            f"{record.score:.2f}",
            _last_failure(record, now),
            "yes" if record.avoided else "no",
            short(record.description, 16),
        )
        for record in records
    ]
    return table(_HEADER, cells, right=(1, 2, 3))


def _last_failure(record: HostRecord, now: float) -> str:
    if record.last_failure_at is None:
        return "-"
    return short(f"{record.last_cause}, {duration(now - record.last_failure_at)}", 18)
