"""Held spending: each dollar of a held machine once, as the share of a run on it or as idle time. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from launcher.core import Cost
from launcher.decisions.pooling import holder_of, is_holder
from launcher.decisions.spending import Spending


def shared(spendings: Sequence[Spending]) -> list[Spending]:
    """Return the same, with the shares of runs on slots taken off the bills of the machines' own runs.

    What is left there is idle: loading, waiting, traffic. A run whose machine's bill is not among these keeps
    the share that it shows.
    """
    holders = {one.run.id: one for one in spendings if is_holder(one.run)}
    on: dict[str, list[Spending]] = defaultdict(list)
    for one in spendings:
        if (holder := holder_of(one.run)) in holders and holder is not None:
            on[holder].append(one)
    found = {one.run.id: one for one in spendings}
    for run_id, holder_spending in holders.items():
        found |= {one.run.id: one for one in _split(holder_spending, on[run_id])}
    return [found[one.run.id] for one in spendings]


def _split(holder: Spending, users: Sequence[Spending]) -> list[Spending]:
    """Return the holder with what is left of its bill, and those on its slots with their parts of it."""
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
