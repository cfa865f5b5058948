"""`cost` in text: what each run cost, and all together."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.actions.queries import Orphan, RunRow
from launcher.render.amounts import duration, usd
from launcher.render.runs import state_of
from launcher.render.table import short, table


def costs_table(rows: Sequence[RunRow], now: float) -> str:
    """Hours, price and dollars by run, with the total."""
    if not rows:
        return "no runs yet"
    cells = [
        (
            row.run.id,
            short(row.run.job, 16),
            f"{hours_of(row, now):.2f}",
            usd(row.run.usd_per_hour),
            usd(row.usd) + ("" if row.verdict or not row.usd else " so far"),
        )
        for row in rows
    ]
    hours, spent_usd = sum(hours_of(row, now) for row in rows), sum(row.usd for row in rows)
    total = ("total", "", f"{hours:.2f}", "", usd(spent_usd))
    return table(("RUN", "JOB", "HOURS", "$/H", "COST"), [*cells, total], right=(2, 3, 4))


def hours_of(row: RunRow, now: float) -> float:
    """How long a machine was rented."""
    run = row.run
    return 0.0 if run.rented_at is None else max(0.0, (run.released_at or now) - run.rented_at) / 3600


def orphans_table(orphans: Sequence[Orphan], now: float) -> str:
    """Machines that nobody claims."""
    if not orphans:
        return "every machine of ours belongs to an open run"
    cells = [
        (
            orphan.instance.id,
            short(orphan.instance.label, 30),
            orphan.instance.state,
            duration(now - orphan.instance.rented_at),
            usd(orphan.instance.usd_per_hour),
            "unknown here" if orphan.run is None else state_of(RunRow(run=orphan.run, usd=0.0)),
        )
        for orphan in orphans
    ]
    return table(("MACHINE", "LABEL", "STATE", "AGE", "$/H", "ITS RUN"), cells, right=(3, 4))
