"""Shares: what the runs on the slots of a held machine cost, and what it cost while nobody used it. Pure.

The provider bills the run that holds a machine, and that alone. A run on one of its slots shows its share:
the price of its part of the machine, for as long as it had it. So one dollar stands in two rows, and a
total is not their sum:

    total = what runs without a slot cost                 (those that hold a machine are among them)
    idle  = what a held machine cost - the shares of its slots: loading, waiting, traffic

Where shares come to more than the bill, as when a host is away and charges nothing, all are cut by the same
factor: shares and idle time are always the bill, to the cent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from launcher.core import Run
from launcher.core.bills import cost_usd
from launcher.decisions.pooling import holder_of


@dataclass(frozen=True, kw_only=True)
class BillSplit:
    """What one held machine cost, by who used it."""

    billed_usd: float
    shares: Mapping[str, float]
    """Dollars by run."""
    idle_usd: float
    """Of the bill, what is nobody's share."""


def split(holder: Run, runs: Iterable[Run], now: float) -> BillSplit:
    """Return how the bill of a held machine is shared among the runs on its slots."""
    billed = cost_usd(holder, now)
    shown = {run.id: cost_usd(run, now) for run in runs if holder_of(run) == holder.id}
    sum_usd = sum(shown.values())
    factor = min(1.0, billed / sum_usd) if sum_usd else 1.0
    shares = {run_id: usd * factor for run_id, usd in shown.items()}
    return BillSplit(billed_usd=billed, shares=shares, idle_usd=max(0.0, billed - sum(shares.values())))


def total_usd(runs: Sequence[Run], now: float) -> float:
    """Return what all these runs cost together, each dollar once."""
    counted = counted_in_total(runs)
    return sum(cost_usd(run, now) for run in runs if run.id in counted)


def counted_in_total(runs: Sequence[Run]) -> frozenset[str]:
    """Return the ids of the runs whose cost makes up the total.

    The share of a run is part of the bill of the run that holds its machine. Where that is not among these
    runs, the share counts itself: it was paid, too.
    """
    known = {run.id for run in runs}
    return frozenset(run.id for run in runs if holder_of(run) not in known)
