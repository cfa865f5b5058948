"""Market and fleet plan: offers for a batch, and the machines that it would hold; nothing is rented."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from vastrun.launcher.batch import placement
from vastrun.launcher.core import Offer
from vastrun.launcher.core.batch import BatchSpec
from vastrun.launcher.core.errors import VastrunError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.labels import POOL
from vastrun.launcher.core.runs import HIDDEN
from vastrun.launcher.decisions.history import HOST_CAUSES, avoided
from vastrun.launcher.decisions.policy import affordable
from vastrun.launcher.pool.held_machines import hold_spec
from vastrun.launcher.ports import Ledger, Provider

_MAX_PRICE_AGE_S = 60.0
"""Seconds for which prices are cached. A rental uses current prices."""
_SLOT_COUNTS = (1, 2, 4, 8)
"""Numbers of concurrent points on one machine. GPUs come in powers of two."""


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
    seconds = placement.expected_s(job, first.offer, ())
    if first.slots == 1 and not placement.pays_off(first.offer, rounds=rounds):
        return None
    # Machines that take one round only are rented again for each.
    times = 1 if spec.reuse == "auto" else math.ceil(count / at_once)
    limit_usd = math.inf if spec.limits.usd is None else spec.limits.usd / len(cheapest_machines.machines)
    holds = [
        placement.choose_hold(
            job, one.offer, slots=one.slots, rounds=rounds, seconds=seconds, max_usd=limit_usd
        )
        for one in cheapest_machines.machines
    ]
    held_s = rounds * (seconds + placement.HANDOVER_S)
    expected_usd = sum(
        placement.replacement_cost_usd(shape.offer) + shape.offer.usd_per_hour * held_s / 3600
        for shape in cheapest_machines.machines
    )
    return FleetPlan(
        machines=len(cheapest_machines.machines) * times,
        offer=first.offer,
        points_at_once=first.slots,
        points_in_turn=rounds,
        expected_usd=expected_usd * times,
        at_most_usd=sum(hold.limits.usd or 0.0 for hold in holds if hold is not None) * times,
        packed_usd_per_hour=cheapest_machines.packed_usd_per_hour,
        single_usd_per_hour=cheapest_machines.single_usd_per_hour,
    )


class Market:
    """One provider's, as a batch asks it."""

    def __init__(self, provider: Callable[[str], Provider], ledger: Ledger, now: Callable[[], float]) -> None:
        self._provider, self._ledger, self._now = provider, ledger, now
        self._known: dict[str, tuple[float, Sequence[Offer]]] = {}

    def offers(self, provider: str, job: JobSpec) -> Sequence[Offer]:
        """Return machines for one run of the job; none where the market has none, or does not answer.

        Whoever rents there hears why.
        """
        # What a point changes is seldom what a market asks for: all points share one answer.
        key = "\n".join((provider, str(job.resources), str(job.image), str(job.limits.usd_per_hour)))
        asked_at, offers = self._known.get(key, (0.0, ()))
        if not 0 <= self._now() - asked_at < _MAX_PRICE_AGE_S:
            offers, now = self._search(provider, job), self._now()
            # A batch may ask for as many markets as it has points.
            young = {one: known for one, known in self._known.items() if now - known[0] < _MAX_PRICE_AGE_S}
            self._known = {**young, key: (now, offers)}
        return offers

    def cheapest_machines(
        self, provider: str, job: JobSpec, points: int, measured_s: Sequence[float], *, packs: bool
    ) -> placement.CheapestFleet | None:
        """Return the machines on which `points` points cost least; None: the market has none."""
        sizes = [size for size in _SLOT_COUNTS if size <= points] if packs and job.resources.gpus else [1]
        usd, hours = job.limits.usd, job.limits.hours
        holds = [hold_spec(job, slots=size, hours=hours, usd=usd, idle_s=placement.IDLE_S) for size in sizes]
        offers = [offer for hold in holds for offer in self.offers(provider, hold)]
        if not offers:
            return None
        return placement.cheapest_fleet(
            points,
            offers,
            gpus=job.resources.gpus,
            seconds=placement.expected_s(job, offers[0], measured_s),
            max_slots=sizes[-1],
        )

    def _search(self, provider: str, job: JobSpec) -> Sequence[Offer]:
        avoid = avoided(self._ledger.runs(causes=HOST_CAUSES, members=True), provider, self._now())
        try:
            found = affordable(job, self._provider(provider).search(job))
        except VastrunError:
            return ()
        return [offer for offer in found if not avoid.covers(offer)]
