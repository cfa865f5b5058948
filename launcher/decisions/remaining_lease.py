"""Remaining leases of machines that cannot be destroyed, since their provider rejects the key. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vastrun.launcher.core import Event, Phase, Run, bills
from vastrun.launcher.decisions import policy

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

LEFT_TO_LEASE = "left_to_lease"
"""`Event.told` of a drive that ended because the key was rejected."""


@dataclass(frozen=True, kw_only=True)
class RemainingLease:
    """Time and cost that remain until a machine's lease ends it."""

    ends_at: float
    """Epoch seconds of its latest end."""
    usd: float
    """USD from now until then, at most."""


def is_left_to_lease(events: Sequence[Event]) -> bool:
    """Return whether the last drive of a run, by its events, ended because the key was rejected."""
    newest = next((event for event in reversed(events) if event.told in ("", LEFT_TO_LEASE)), None)
    return newest is not None and newest.told == LEFT_TO_LEASE


def estimate_remaining_lease(run: Run, spec: JobSpec, now: float) -> RemainingLease | None:
    """Return the remaining lease of the run's machine; None: it has no machine."""
    if run.phase is Phase.ENDED or run.offer is None or run.instance_id is None:
        return None
    ends_at = policy.lease_ends_at(run, policy.lease_of(spec, run.offer))
    if ends_at is None:
        return None
    if run.meter.began_at is None:  # its lease counts from when it runs, and it may still load
        ends_at += policy.BOOT_S
    until = max(now, ends_at)
    return RemainingLease(
        ends_at=ends_at, usd=max(0.0, bills.cost_usd(run, until) - bills.cost_usd(run, now))
    )


def sum_leases(left: Sequence[RemainingLease]) -> RemainingLease | None:
    """Return the sum for several machines; None: there are none."""
    if not left:
        return None
    return RemainingLease(ends_at=max(one.ends_at for one in left), usd=sum(one.usd for one in left))
