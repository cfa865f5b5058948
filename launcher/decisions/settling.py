"""Settling: from when on a run costs what its provider charged, instead of what was counted. Pure.

A list of charges may lack a part. The bill takes the place of the count only where it is whole; and where it
is lower, only as far as what was seen of the machines explains why.
"""

from __future__ import annotations

from collections.abc import Iterable

from launcher.core import Charge, Cost, Phase, Run
from launcher.decisions.reconciling import Bill, ReconciledBill, settles_at

ASKED_FOR_S = 7 * 86_400.0
"""For so long a bill that should be whole is asked for unbidden: one that is not by then hardly will be."""


def settled(one: ReconciledBill) -> Cost | None:
    """Return what the run cost by its bill; None: that is not whole, or lower than can be explained."""
    cost = charged_cost(one.bill.charges)
    is_low = cost.usd <= 0 or (one.bill.difference_usd < 0 and not one.explained)
    return None if is_low or not is_whole(one.bill) else cost


def is_due(run: Run, now: float) -> bool:
    """Return whether the bill of the run should be whole by now, and was not seen whole yet."""
    return run.charged is None and run.phase is Phase.ENDED and 0 <= now - settles_at(run) <= ASKED_FOR_S


def is_whole(bill: Bill) -> bool:
    """Return whether it is over, long enough ago, and each of its machines was charged for."""
    charged = {charge.instance_id for charge in bill.charges}
    return (
        bill.run.phase is Phase.ENDED
        and bill.now >= bill.settles_at
        and charged.issuperset(machine.instance_id or "" for machine in bill.machines)
    )


def charged_cost(charges: Iterable[Charge]) -> Cost:
    """Return the sum of the charges by what they are for, no part below 0 and all together the sum."""
    charges = list(charges)
    usd = sum(charge.usd for charge in charges)
    traffic_usd = _between(sum(charge.traffic_usd for charge in charges), usd)
    storage_usd = _between(sum(charge.storage_usd for charge in charges), usd - traffic_usd)
    return Cost(gpu_usd=usd - traffic_usd - storage_usd, storage_usd=storage_usd, traffic_usd=traffic_usd)


def _between(usd: float, most_usd: float) -> float:
    return min(max(0.0, usd), max(0.0, most_usd))
