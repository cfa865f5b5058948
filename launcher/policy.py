"""Decisions about money and time: pure functions that get `now` as an argument."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from launcher.job import JobSpec
from launcher.model import Cause, Instance, Lease, Offer, Run

SHIP_S = 900.0
"""A box to which nothing was shipped by then ends itself."""
BOOT_S = 2400.0
"""Longest wait for a box to answer with its lease armed: a large image takes this long on a slow host."""
STILL_S = 900.0
"""Longest wait for a box whose start shows no progress: one layer of an image may take 10 minutes."""
ANSWER_S = 300.0
"""Longest wait for a box that runs, as its provider says, to answer."""
MISTRUST_S = 40.0
"""Longest wait for a box that shows another host key than its log names: it may make its keys late."""
LEASE_PROOF_S = 60.0
"""Longest wait for the lease of a box that answers already."""
STOP_S = 150.0
"""Longest wait for a training that was asked to stop: the supervisor's own limits are below this."""
DEAD_S = 30.0
"""A box whose run died gets this long for its lease to say so."""
LIMIT_SLACK_S = 120.0
"""How long after its lease's end a box may still be seen before the launcher acts itself."""
HOLD_S = 600.0
"""How long a driver may be silent before another may take its run."""
DESTROY_TRIES = 5
RENT_TRIES = 5
_PAID_COLLECT_S = 1800.0
_FREE_COLLECT_S = 86400.0
_GRACE_S = 120.0


def cost_usd(run: Run, now: float) -> float:
    """Dollars spent on the run's machine so far: price x time from rent to confirmed absence."""
    if run.rented_at is None:
        return 0.0
    return max(0.0, (run.released_at or now) - run.rented_at) / 3600 * run.usd_per_hour


def worst_case_usd(spec: JobSpec, offer: Offer) -> float:
    """The most this job can cost on this offer: the lease ends the box there."""
    return lease_of(spec, offer).life_s / 3600 * offer.usd_per_hour


def lease_of(spec: JobSpec, offer: Offer) -> Lease:
    """The lease that holds the job's limits at this offer's price."""
    life_s, life_cause = spec.limits.hours * 3600, Cause.TIME_LIMIT
    if spec.limits.usd is not None and offer.usd_per_hour > 0:
        money_s = spec.limits.usd / offer.usd_per_hour * 3600
        if money_s < life_s:
            life_s, life_cause = money_s, Cause.MONEY_LIMIT
    collect_s = spec.limits.collect_s
    if collect_s is None:
        collect_s = _PAID_COLLECT_S if offer.usd_per_hour > 0 else _FREE_COLLECT_S
    return Lease(
        ship_s=min(SHIP_S, life_s),
        life_s=life_s,
        life_cause=life_cause,
        grace_s=min(_GRACE_S, life_s / 5),
        collect_s=collect_s,
    )


def lease_env(lease: Lease) -> dict[str, str]:
    """The lease as the variables that docs/box.md names."""
    return {
        "LEASE_SHIP_S": f"{lease.ship_s:.0f}",
        "LEASE_LIFE_S": f"{lease.life_s:.0f}",
        "LEASE_LIFE_CAUSE": lease.life_cause.value,
        "LEASE_GRACE_S": f"{lease.grace_s:.0f}",
        "LEASE_COLLECT_S": f"{lease.collect_s:.0f}",
    }


def affordable(spec: JobSpec, offers: Iterable[Offer]) -> list[Offer]:
    """The offers within the job's hourly price, in the order given."""
    cap = spec.limits.usd_per_hour
    return [offer for offer in offers if cap is None or offer.usd_per_hour <= cap]


def unlimited(spec: JobSpec, offer: Offer) -> bool:
    """True when money would be spent and the job sets no limit on it."""
    return offer.usd_per_hour > 0 and spec.limits.usd is None and spec.limits.usd_per_hour is None


def ours(run: Run, instances: Sequence[Instance]) -> list[Instance]:
    """The machines of this run: by label, or by the id that was noted."""
    return [i for i in instances if i.label == run.label or i.id == run.instance_id]


def rented_at(run: Run, machine: Instance, now: float) -> float:
    """When the machine began to cost: as the provider says, between our asking for it and now."""
    return min(max(run.rented_at or now, machine.rented_at), now)


def released_at(run: Run, lease_life_s: float, agreed_at: float, *, found: bool) -> float:
    """When the machine stopped costing: as its end was agreed to, or by its lease before we looked."""
    if found or run.rented_at is None:
        return agreed_at
    return min(agreed_at, run.rented_at + lease_life_s + LIMIT_SLACK_S)


def with_limit(spec: JobSpec, spent_usd: float) -> JobSpec:
    """The job with what is left of its money: a retry and the runs before it share one limit."""
    if spec.limits.usd is None:
        return spec
    return replace(spec, limits=replace(spec.limits, usd=max(0.01, spec.limits.usd - spent_usd)))
