"""`cost` in text: what each run cost, and all together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from launcher.commands.queries import RunRow, UsdSource
from launcher.core.bills import rented_seconds
from launcher.decisions.shares import counted_in_total
from launcher.ui.render.amounts import usd_parts, usd_sum
from launcher.ui.render.table import table


def costs_table(rows: Sequence[RunRow], now: float, *, billed: bool = False, width: int | None = None) -> str:
    """Show hours and dollars by run, part by part, with the total; what was billed takes the job's place.

    The share of a run on a slot stands in its row, and in the total as part of its machine's bill alone.
    """
    if not rows:
        return "no runs yet"
    # Rounded before they are summed: whoever adds up the column gets the total below it.
    hours = [round(sum(rented_seconds(one, now) for one in row.machines) / 3600, 2) for row in rows]
    parts = [usd_parts((row.cost.gpu_usd, row.cost.storage_usd, row.cost.traffic_usd)) for row in rows]
    gpu, storage, traffic = zip(*parts, strict=True)
    counted = counted_in_total([row.run for row in rows])
    counts = [row.run.id in counted for row in rows]
    columns = {
        "RUN": [*(row.run.id for row in rows), "total"],
        "JOB": [*(row.run.job for row in rows), ""],
        "HOURS": [f"{number:.2f}" for number in (*hours, sum(compress(hours, counts)))],
        "GPU": _dollars(gpu, counts),
        "STORAGE": _dollars(storage, counts),
        "TRAFFIC": _dollars(traffic, counts),
        "COST": [*map(_cost, rows), usd_sum(row.usd for row in compress(rows, counts))],
        "BILLED": [*map(_bill, rows), usd_sum(row.billed_usd or 0.0 for row in rows)],
    }
    del columns["JOB" if billed else "BILLED"]
    right = [number for number, name in enumerate(columns) if name not in ("RUN", "JOB")]
    cut = () if billed else (1,)
    shown = table(tuple(columns), zip(*columns.values(), strict=True), right=right, cut=cut, width=width)
    return "\n\n".join(filter(None, (shown, _charged(rows))))


def _charged(rows: Sequence[RunRow]) -> str:
    """How much of it is the bill; nothing before any of it is."""
    bills = sum(row.usd_source is UsdSource.CHARGED for row in rows)
    return f"as charged: the cost of {bills} of {len(rows)} runs; the rest is as counted" if bills else ""


def _dollars(amounts: Sequence[float], counts: Sequence[bool]) -> list[str]:
    return [*(usd_sum([amount]) for amount in amounts), usd_sum(compress(amounts, counts))]


def _cost(row: RunRow) -> str:
    return usd_sum([row.usd]) + ("" if row.verdict or not row.usd else " so far")


def _bill(row: RunRow) -> str:
    return "not yet" if row.billed_usd is None else usd_sum([row.billed_usd])
