"""Measured speed-up of several ranks, in text."""

from __future__ import annotations

from collections.abc import Mapping

from vastrun.launcher.decisions.speedup import Bottleneck, Speedup, SpeedupRow
from vastrun.launcher.ui.render.table import facts, table

_HEADER = ("RANKS", "SAMPLES/S", "STEP", "SPEED-UP", "EFFICIENCY", "DATA", "COLLECTIVES", "FIXED", "LIMIT")
_LIMITS: Mapping[Bottleneck, str] = {
    "none": "none",
    "data": "data: raise train.loader.workers or prefetch, or keep data in memory",
    "collectives": "waiting for other ranks: try a larger batch, or fewer ranks",
    "unknown": "unknown: one rank alone could not train its share of the batch",
    "fixed": "work that does not shrink with the share: try a larger batch, or fewer ranks",
}
_NOTE = """\
The batch is the same for each number of ranks. EFFICIENCY: speed-up per rank.
Shares of a step: DATA, waiting for data; COLLECTIVES, more than one rank alone
takes for its share of the batch; FIXED, work that does not shrink with the share."""


def speedup_text(speedup: Speedup) -> str:
    """Write a line for each number of ranks, and what limits the largest one."""
    last = speedup.rows[-1]
    head = facts(
        [
            ("measured on", speedup.gpu or "CPU"),
            ("batch", f"{speedup.batch} windows"),
            ("limit", f"{_LIMITS[last.limit]}\n{last.ranks} ranks: efficiency {last.efficiency:.0%}"),
        ]
    )
    return "\n\n".join([head, table(_HEADER, map(_cells, speedup.rows), right=range(8)), _NOTE])


def _cells(row: SpeedupRow) -> tuple[str, ...]:
    return (
        str(row.ranks),
        f"{row.samples_per_s:,.4g}",
        f"{row.step_s * 1000:.3g}ms" if row.step_s < 1 else f"{row.step_s:.3g}s",
        f"{row.speedup:.2f}",
        f"{row.efficiency:.0%}",
        f"{row.data:.0%}",
        *("-" if share is None else f"{share:.0%}" for share in (row.collectives, row.fixed)),
        row.limit,
    )
