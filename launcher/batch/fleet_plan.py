"""Fleet plan: machines that a batch would hold, and their expected cost; nothing is rented."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from vastrun.launcher.batch.market import Market
from vastrun.launcher.core import Offer
from vastrun.launcher.core.batch import BatchSpec
from vastrun.launcher.core.hidden import HIDDEN
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.slots import POOL
from vastrun.launcher.decisions.hold_size import HANDOVER_S, choose_hold_size, expected_s, pays_off
from vastrun.launcher.decisions.placement import CheapestFleet, replacement_cost_usd
from vastrun.launcher.decisions.policy import START_S
from vastrun.launcher.ports import Ledger, Provider


@dataclass(frozen=True, kw_only=True)
class FleetPlan:
    """The machines that a batch would hold if all its points were as the first one."""

    machines: int
    offer: Offer = field(metadata=HIDDEN)
    """The first of them."""
    points_at_once: int
    """Number of concurrent points on that one."""
    points_in_turn: int
    """Number of consecutive points on each slot."""
    expected_usd: float
    at_most_usd: float
    """Maximum USD reserved for these machines, within the batch's budget."""
    packed_usd_per_hour: float
    """USD per hour of one point."""
    single_usd_per_hour: float | None
    """USD per hour of one point alone on the cheapest machine; None: none is on offer."""


def fleet_plan(
    spec: BatchSpec, job: JobSpec, count: int, provider: Provider, ledger: Ledger, now: float
) -> FleetPlan | None:
    """Return the machines to hold for `count` points of the job; None: each point has its own machine."""
    if not spec.may_share_machines or provider.name == POOL or job.nodes != 1:
        return None
    at_once = min(spec.limits.parallel, count)
    rounds = math.ceil(count / at_once) if spec.reuse == "auto" else 1
    market = Market(lambda _: provider, ledger, lambda: now)
    cheapest_machines = market.cheapest_machines(provider.name, job, at_once, (), packs=spec.pack == "auto")
    if cheapest_machines is None:
        return None
    first = cheapest_machines.machines[0]
    seconds = expected_s(job, first.offer, ())
    if first.slots == 1 and not pays_off(first.offer, rounds=rounds, seconds=seconds):
        return None
    # Machines that take one round only are rented again for each.
    times = 1 if spec.reuse == "auto" else math.ceil(count / at_once)
    return FleetPlan(
        machines=len(cheapest_machines.machines) * times,
        offer=first.offer,
        points_at_once=first.slots,
        points_in_turn=rounds,
        expected_usd=_expected_usd(cheapest_machines, rounds, seconds) * times,
        at_most_usd=_worst_usd(spec, job, cheapest_machines, rounds, seconds) * times,
        packed_usd_per_hour=cheapest_machines.packed_usd_per_hour,
        single_usd_per_hour=cheapest_machines.single_usd_per_hour,
    )


def _expected_usd(cheapest_machines: CheapestFleet, rounds: int, seconds: float) -> float:
    held_s = rounds * (seconds + HANDOVER_S)
    return sum(
        replacement_cost_usd(shape.offer, boot_s=START_S, data_s=0.0)
        + shape.offer.usd_per_hour * held_s / 3600
        for shape in cheapest_machines.machines
    )


def _worst_usd(
    spec: BatchSpec, job: JobSpec, cheapest_machines: CheapestFleet, rounds: int, seconds: float
) -> float:
    limit_usd = math.inf if spec.limits.usd is None else spec.limits.usd / len(cheapest_machines.machines)
    sizes = [
        choose_hold_size(job, one.offer, slots=one.slots, rounds=rounds, seconds=seconds, max_usd=limit_usd)
        for one in cheapest_machines.machines
    ]
    return sum(size.usd or 0.0 for size in sizes if size is not None)
