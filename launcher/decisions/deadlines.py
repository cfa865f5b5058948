"""Deadlines: offers that are expected to finish a job in time, and what is left of a lease. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from vastrun.contract import stop_budget
from vastrun.launcher.core import Cause, Event, Offer, Phase, Run, bills
from vastrun.launcher.core.errors import JobValueError, NoOfferError
from vastrun.launcher.core.market import UNMEASURED
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import usd
from vastrun.launcher.decisions.job_shape import steps_of
from vastrun.launcher.decisions.policy import START_S, deadline_of

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

LEFT_TO_LEASE = "left_to_lease"
"""`Event.told` of a drive that ended because the key was rejected."""


def check_deadline(spec: JobSpec, now: float, *, min_s: float) -> None:
    """Raise JobValueError where at most `min_s` seconds are left until the job's deadline."""
    deadline = deadline_of(spec)
    if deadline is not None and (left_s := deadline - now) <= min_s:
        how_far = f"{left_s:.0f} s from now" if left_s > 0 else "over"
        raise JobValueError(
            f"limits.deadline: {moment_text(spec, deadline)} is {how_far}; a machine needs "
            f"about {START_S:.0f} s from its start until it trains",
            hint="a later --by or limits.deadline",
            cause=Cause.TIME_LIMIT,
        )


def expected_end(spec: JobSpec, offer: Offer, now: float, done: int = 0) -> float | None:
    """Return when the job should be done if the offer is rented now; None where its speed was not
    measured.

    `done`: the step of the checkpoint from which it continues.
    """
    forecast, steps = offer.forecast, steps_of(spec)
    if forecast is None or forecast.basis in UNMEASURED or not steps:
        return None
    return now + forecast.ready_s + forecast.train_s * max(0.0, 1 - done / steps)


def offers_in_time(spec: JobSpec, offers: Iterable[Offer], now: float, done: int = 0) -> list[Offer]:
    """Return the offers that are expected to finish in time, then those with unknown speed, each in the
    order given, without those that are expected to be late."""
    deadline = deadline_of(spec)
    if deadline is None:
        return list(offers)
    # Done by then, a job needs no stop request at its deadline.
    latest = deadline - min(stop_budget.LEASE_S, max(0.0, deadline - now) / 5)
    ends = [(offer, expected_end(spec, offer, now, done)) for offer in offers]
    known = [offer for offer, end in ends if end is not None and end <= latest]
    unknown = [offer for offer, end in ends if end is None and _ready_at(offer, now) < latest]
    return known + unknown


def require_in_time(spec: JobSpec, offers: Sequence[Offer], now: float, done: int = 0) -> list[Offer]:
    """Filter and order offers as `offers_in_time`.

    Raises NoOfferError, which names the earliest, where every offer is late.
    """
    in_time = offers_in_time(spec, offers, now, done)
    if in_time or not offers:
        return in_time
    soonest = min(offers, key=lambda offer: expected_end(spec, offer, now, done) or math.inf)
    end = expected_end(spec, soonest, now, done)
    by = moment_text(spec, deadline_of(spec) or now)
    if end is None:
        ready_at = moment_text(spec, min(_ready_at(offer, now) for offer in offers))
        raise NoOfferError(
            f"limits.deadline: no machine trains before {by}; the soonest is ready at {ready_at}",
            hint="a later --by or limits.deadline",
        )
    raise NoOfferError(
        f"limits.deadline: no offer is expected to finish by {by}; the soonest, {soonest.id} "
        f"({soonest.gpus} x {soonest.gpu_name}), is expected to finish at {moment_text(spec, end)} for "
        f"{usd(soonest.expected_usd)}",
        hint="a later --by or limits.deadline, fewer steps, or resources: that allow faster machines",
    )


def deadline_text(spec: JobSpec, offer: Offer, now: float, done: int = 0) -> str:
    """Say whether the job should be done in time on that offer; empty where it has no deadline."""
    deadline = deadline_of(spec)
    if deadline is None:
        return ""
    by, end = moment_text(spec, deadline), expected_end(spec, offer, now, done)
    if end is None:
        return f"not known whether it finishes by {by}; it is stopped then"
    return f"expected to finish at {moment_text(spec, end)}; it is stopped at {by}"


def moment_text(spec: JobSpec, at: float) -> str:
    """Format the moment to the minute, in the zone of the job's deadline: `2030-11-25 18:00`."""
    zone = datetime.fromisoformat(spec.limits.deadline).tzinfo if spec.limits.deadline else UTC
    return f"{datetime.fromtimestamp(at, tz=zone):%Y-%m-%d %H:%M}"


def _ready_at(offer: Offer, now: float) -> float:
    return now if offer.forecast is None else now + offer.forecast.ready_s


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
    more_usd = bills.cost_usd(run, until) - bills.cost_usd(run, now)
    return RemainingLease(ends_at=ends_at, usd=max(0.0, more_usd))


def sum_leases(left: Sequence[RemainingLease]) -> RemainingLease | None:
    """Return the sum for several machines; None: there are none."""
    if not left:
        return None
    return RemainingLease(ends_at=max(one.ends_at for one in left), usd=sum(one.usd for one in left))
