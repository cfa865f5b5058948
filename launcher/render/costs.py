"""`cost` in text: what each run cost, and all together."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.actions.queries import RunRow
from launcher.bills import rented_seconds
from launcher.render.amounts import usd
from launcher.render.table import short, table


def costs_table(rows: Sequence[RunRow], now: float, *, billed: bool = False) -> str:
    """Hours and dollars by run, part by part, with the total; what was billed takes the place of the job."""
    if not rows:
        return "no runs yet"
    hours = [rented_seconds(row.run, now) / 3600 for row in rows]
    columns = {
        "RUN": [*(row.run.id for row in rows), "total"],
        "JOB": [*(short(row.run.job, 10) for row in rows), ""],
        "HOURS": [f"{number:.2f}" for number in (*hours, sum(hours))],
        "GPU": _dollars([row.cost.gpu_usd for row in rows]),
        "STORAGE": _dollars([row.cost.storage_usd for row in rows]),
        "TRAFFIC": _dollars([row.cost.traffic_usd for row in rows]),
        "COST": [*map(_cost, rows), usd(sum(row.usd for row in rows))],
        "BILLED": [*map(_bill, rows), usd(sum(row.billed_usd or 0.0 for row in rows))],
    }
    del columns["JOB" if billed else "BILLED"]
    right = [number for number, name in enumerate(columns) if name not in ("RUN", "JOB")]
    return table(tuple(columns), zip(*columns.values(), strict=True), right=right)


def _dollars(amounts: Sequence[float]) -> list[str]:
    return [usd(amount) for amount in (*amounts, sum(amounts))]


def _cost(row: RunRow) -> str:
    return usd(row.usd) + ("" if row.verdict or not row.usd else " so far")


def _bill(row: RunRow) -> str:
    return "not yet" if row.billed_usd is None else usd(row.billed_usd)
