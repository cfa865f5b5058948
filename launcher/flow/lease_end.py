"""Lease end: whether a run's time is up, and what became of a machine that is gone."""

from __future__ import annotations

from launcher.decisions import policy
from launcher.flow.context import RunContext


def is_due(context: RunContext) -> bool:
    """The launcher's own lock on the deadline: the lease counts from when its machine began to run."""
    offer = context.run.offer
    return offer is not None and policy.is_due(
        context.spec, policy.lease_of(context.spec, offer), context.now()
    )


def how_lost(context: RunContext) -> str:
    """In words, why the provider has the machine no more."""
    offer, rented_at = context.run.offer, context.run.rented_at
    if offer is not None and rented_at is not None:
        lease = policy.lease_of(context.spec, offer)
        if context.now() >= rented_at + min(lease.life_s, lease.collect_s):
            return (
                "the machine no longer exists; its lease may have expired before the outputs were downloaded"
            )
    return "the machine no longer exists; the provider no longer lists it"
