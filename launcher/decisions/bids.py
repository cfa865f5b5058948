"""Bids: how much to bid for a machine, and whether a higher bid keeps one that was outbid. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from vastrun.launcher.core import Offer, Run, bills
from vastrun.launcher.decisions import policy
from vastrun.launcher.decisions.estimates import interruption_hours, lost_hours
from vastrun.launcher.decisions.job_shape import steps_of

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec

_BID_MARGIN = 1.2
"""Bid as a multiple of the lowest bid that wins now."""
MAX_RAISES = 3
"""Max. raised bids of a run: each costs a wait, and the other bidder may raise again."""
RESTART_WAIT_S = 600.0
"""Max. seconds until a machine whose bid was raised trains again: it may read `exited` for this long."""
_RESTART_S = 120.0
"""Usual seconds from a raised bid to the training: the container starts, the ranks load their checkpoint."""


def bid_above(lowest_usd: float, *caps_usd: float | None) -> float | None:
    """Return a bid above the lowest that wins by a margin, within the caps; None when they are too low."""
    if lowest_usd <= 0:
        return None
    bid = min([lowest_usd * _BID_MARGIN, *(cap for cap in caps_usd if cap is not None)])
    # Rounded down, so that the bid stays within the caps.
    bid = int(bid * 10_000) / 10_000
    return bid if bid >= lowest_usd * 1.05 else None


def offer_at_raised_bid(
    spec: JobSpec,
    run: Run,
    lowest_usd: float,
    other_offers: Sequence[Offer],
    *,
    interruptions_per_hour: float,
    left: float,
    now: float,
) -> Offer | None:
    """Return the offer of a run that was outbid at a bid that wins; None: its machine is not worth that.

    `lowest_usd`: lowest bid that wins it now, in USD per hour. `other_offers`: those of other
    machines. `left`: share of the training that is left.
    """
    raised = _raised(spec, run, lowest_usd)
    if raised is None or not _is_within_limits(spec, run, raised, now):
        return None
    lost = lost_hours(spec, run.steps_per_s)
    if lost is None:  # nothing was saved
        lost, left = 0.0, 1.0
    if not other_offers:
        return raised
    train_s = _train_s(spec, run)
    if train_s is None:
        return None
    hours = left * train_s / 3600
    start_hours = _RESTART_S / 3600
    again = interruption_hours(hours, interruptions_per_hour, start_hours, lost)
    here_usd = (start_hours + lost + hours + again) * raised.usd_per_hour
    return raised if here_usd <= min(_rest_usd(offer, left, lost) for offer in other_offers) else None


def _raised(spec: JobSpec, run: Run, lowest_usd: float) -> Offer | None:
    """Return the run's offer at a bid above the lowest that wins; None where it is none, or is too dear."""
    offer, cap = run.offer, spec.limits.usd_per_hour
    if offer is None or offer.bid_usd_per_hour is None:
        return None
    storage_usd = offer.extras.storage_usd_per_hour
    bid = bid_above(lowest_usd, None if cap is None else cap - storage_usd)
    if bid is None or bid <= offer.bid_usd_per_hour:
        return None
    return replace(offer, bid_usd_per_hour=bid, usd_per_hour=bid + storage_usd)


def _is_within_limits(spec: JobSpec, run: Run, raised: Offer, now: float) -> bool:
    """Return whether the job's money pays for the machine at that price, even without a launcher."""
    age_s, limit_usd = policy.lease_age_s(run, now), policy.share_usd(spec)
    former = policy.lease_of(spec, run.offer or raised)
    # A lease of the new price is armed before the training goes on.
    if policy.lease_of(spec, raised).life_s - age_s < _RESTART_S + policy.MIN_TRAINING_S:
        return False
    # Until then the former one ends the machine, at the latest when it has waited for a launcher.
    alone_s = min(former.life_s - age_s, former.collect_s)
    return limit_usd is None or bills.cost_usd(run, now) + alone_s / 3600 * raised.usd_per_hour <= limit_usd


def _train_s(spec: JobSpec, run: Run) -> float | None:
    """Return the seconds of the whole training on the run's machine, as measured, else as expected."""
    steps = steps_of(spec)
    if steps and run.steps_per_s:
        return steps / run.steps_per_s
    return None if run.offer is None or run.offer.forecast is None else run.offer.forecast.train_s


def _rest_usd(offer: Offer, left: float, lost_hours: float) -> float:
    """Return the expected USD for the rest of the training on another machine, its loading included."""
    train_hours = 0.0 if offer.forecast is None else offer.forecast.train_s / 3600
    return offer.expected_usd - ((1 - left) * train_hours - lost_hours) * offer.usd_per_hour
