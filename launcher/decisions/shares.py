"""Shares: cost of the runs on the slots of a held machine, and of its idle time. Pure.

The provider bills the run that holds a machine, and that alone. A run on one of its slots shows its share:
the price of its part of the machine, for as long as it had it. So one dollar stands in two rows, and a
total is not their sum:

    total = what runs without a slot cost                 (those that hold a machine are among them)
    idle  = what a held machine cost - the shares of its slots: loading, waiting, traffic

Where shares come to more than the bill, as when a host is away and charges nothing, all are cut by the same
factor: shares and idle time are always the bill, to the cent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import Cost, Run
from vastrun.launcher.core.bills import cost_usd
from vastrun.launcher.decisions.holders import holder_of, is_holder
from vastrun.launcher.decisions.spending import Spending


@dataclass(frozen=True, kw_only=True)
class BillSplit:
    """Cost of one held machine, by run."""

    billed_usd: float
    shares: Mapping[str, float]
    """USD by run id."""
    idle_usd: float
    """USD of the bill that belongs to no run."""


def split(holder: Run, runs: Iterable[Run], now: float) -> BillSplit:
    """Split the bill of a held machine among the runs on its slots."""
    billed = cost_usd(holder, now)
    shown = {run.id: cost_usd(run, now) for run in runs if holder_of(run) == holder.id}
    sum_usd = sum(shown.values())
    factor = min(1.0, billed / sum_usd) if sum_usd else 1.0
    shares = {run_id: usd * factor for run_id, usd in shown.items()}
    return BillSplit(billed_usd=billed, shares=shares, idle_usd=max(0.0, billed - sum(shares.values())))


def total_usd(runs: Sequence[Run], now: float) -> float:
    """Return the total cost of all these runs in USD, without double counting."""
    counted = counted_in_total(runs)
    return sum(cost_usd(run, now) for run in runs if run.id in counted)


def counted_in_total(runs: Sequence[Run]) -> frozenset[str]:
    """Return the ids of the runs whose cost makes up the total.

    The share of a run on a slot is part of its holder's bill. Where the holder is not among these runs,
    the share itself counts.
    """
    known = {run.id for run in runs}
    return frozenset(run.id for run in runs if holder_of(run) not in known)


def net_of_shares(spendings: Sequence[Spending]) -> list[Spending]:
    """Return the spendings, with the shares of runs on slots subtracted from the bills of their holders.

    The rest of such a bill is idle cost: loading, waiting, traffic. A run whose holder is not among these
    keeps its own share.
    """
    holders = {one.run.id: one for one in spendings if is_holder(one.run)}
    on: dict[str, list[Spending]] = defaultdict(list)
    for one in spendings:
        if (holder := holder_of(one.run)) in holders and holder is not None:
            on[holder].append(one)
    found = {one.run.id: one for one in spendings}
    for run_id, holder_spending in holders.items():
        found |= {one.run.id: one for one in _split_spending(holder_spending, on[run_id])}
    return [found[one.run.id] for one in spendings]


def _split_spending(holder: Spending, users: Sequence[Spending]) -> list[Spending]:
    """Return the holder with the rest of its bill, and the runs on its slots with their parts of it."""
    time_usd = holder.cost.gpu_usd + holder.cost.storage_usd
    shown_usd = sum(user.cost.usd for user in users)
    factor = min(1.0, time_usd / shown_usd) if shown_usd else 1.0
    storage_part = holder.cost.storage_usd / time_usd if time_usd else 0.0
    used = factor * shown_usd / time_usd if time_usd else 0.0
    left = Cost(
        gpu_usd=holder.cost.gpu_usd * (1 - used),
        storage_usd=holder.cost.storage_usd * (1 - used),
        traffic_usd=holder.cost.traffic_usd,
    )
    idle = replace(
        holder,
        cost=left,
        idle_usd=left.usd,
        hours=holder.hours * (1 - used),
        gpu_hours=holder.gpu_hours * (1 - used),
        is_held=True,
    )
    return [idle, *(_as_share(user, factor, storage_part) for user in users)]


def _as_share(user: Spending, factor: float, storage_part: float) -> Spending:
    usd = user.cost.usd * factor
    cost = Cost(gpu_usd=usd * (1 - storage_part), storage_usd=usd * storage_part)
    return replace(user, cost=cost, idle_usd=user.idle_usd * factor)
