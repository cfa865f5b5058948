"""`cost` in text: what each run cost, and all together."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.actions.queries import Orphan, RunRow
from launcher.model import Cost
from launcher.policy import rented_seconds
from launcher.render.amounts import duration, usd
from launcher.render.runs import state_of
from launcher.render.table import short, table


def costs_table(rows: Sequence[RunRow], now: float) -> str:
    """Hours and dollars by run, part by part, with the total."""
    if not rows:
        return "no runs yet"
    cells = [
        (
            row.run.id,
            short(row.run.job, 10),
            f"{rented_seconds(row.run, now) / 3600:.2f}",
            *_parts(row.cost),
            usd(row.usd) + ("" if row.verdict or not row.usd else " so far"),
        )
        for row in rows
    ]
    hours = sum(rented_seconds(row.run, now) for row in rows) / 3600
    cost = _sum([row.cost for row in rows])
    total = ("total", "", f"{hours:.2f}", *_parts(cost), usd(cost.usd))
    header = ("RUN", "JOB", "HOURS", "GPU", "STORAGE", "TRAFFIC", "COST")
    return table(header, [*cells, total], right=(2, 3, 4, 5, 6))


def _parts(cost: Cost) -> tuple[str, ...]:
    return usd(cost.gpu_usd), usd(cost.storage_usd), usd(cost.traffic_usd)


def _sum(costs: Sequence[Cost]) -> Cost:
    return Cost(
        gpu_usd=sum(cost.gpu_usd for cost in costs),
        storage_usd=sum(cost.storage_usd for cost in costs),
        traffic_usd=sum(cost.traffic_usd for cost in costs),
    )


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
            "unknown here" if orphan.run is None else state_of(RunRow(run=orphan.run, cost=Cost())),
        )
        for orphan in orphans
    ]
    return table(("MACHINE", "LABEL", "STATE", "AGE", "$/H", "ITS RUN"), cells, right=(3, 4))
