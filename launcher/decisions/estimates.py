"""Estimates: the expected and the maximum cost of an offer, whether a job's limits are enough to train, and
the market as a job sees it.

expected   what the job there should cost, by `expected_usd`: what finishing it costs, but never more than its
           limits allow. Offers are sorted by `Offer.expected_usd`, which knows no limits
at most    what the job's limits let it cost there, by `policy.worst_case_usd`
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vastrun.contract.texts import how_many
from vastrun.launcher.config import program_of
from vastrun.launcher.core import Forecast, Offer
from vastrun.launcher.core.batch import BudgetUse
from vastrun.launcher.core.errors import BudgetError, JobValueError, NoOfferError
from vastrun.launcher.decisions import policy

if TYPE_CHECKING:
    from vastrun.launcher.core.job import JobSpec
    from vastrun.launcher.decisions.history import AvoidedHosts

_ROUNDING_USD = 1e-9
_MAX_REPEATS = 100.0
"""Max. expected repeats: without a checkpoint a long job may never be finished."""
_USUAL_LOST_HOURS = 0.1
"""Hours of work since the newest checkpoint, where the job's interval is unknown."""


def usd(amount: float) -> str:
    """Format the amount in cents; below a dollar, in tenths of a cent."""
    return f"${amount:.3f}" if 0 < amount < 0.9995 else f"${amount:.2f}"


def expected_usd(spec: JobSpec, offer: Offer) -> float:
    """Return the expected cost of all nodes of the job, which end at its limits, finished or not."""
    return min(finishing_usd(spec, offer), policy.worst_case_usd(spec, offer))


def finishing_usd(spec: JobSpec, offer: Offer) -> float:
    """Return the expected cost of finishing the job, without its limits; 0: unknown."""
    return offer.expected_usd * spec.nodes


def data_usd(offer: Offer, seconds: float, gb: float) -> float:
    """Return the cost of bringing data to one machine: its price meanwhile, and the traffic."""
    return seconds / 3600 * offer.usd_per_hour + gb * offer.extras.down_usd_per_gb


def is_cut_short(spec: JobSpec, offer: Offer) -> bool:
    """Return whether the limits end the job before it is finished, by a speed that is more than a guess."""
    is_guess = offer.forecast is not None and offer.forecast.basis == "guess"
    return not is_guess and finishing_usd(spec, offer) > policy.worst_case_usd(spec, offer)


def offer_text(spec: JobSpec, offer: Offer) -> str:
    """Describe the offer with its price, its expected and its maximum cost."""
    hours = policy.lease_of(spec, offer).life_s / 3600
    maximum = f"at most {usd(policy.worst_case_usd(spec, offer))} and {hours:.3g} h"
    all_usd = policy.all_attempts_usd(spec, offer)
    if all_usd > policy.worst_case_usd(spec, offer):
        maximum += f", {usd(all_usd)} with all retries"
    expected = f"expected {usd(expected_usd(spec, offer))}, " if offer.expected_usd else ""
    known = "" if offer.forecast is None else f"; its speed is {basis_text(offer.forecast)}"
    each = f"{spec.nodes} machines, each {offer.description}" if spec.nodes > 1 else offer.description
    return f"{each} at {usd(offer.usd_per_hour)}/h; {expected}{maximum}{known}"


def basis_text(forecast: Forecast) -> str:
    """Describe how the speed is known."""
    runs = how_many(forecast.runs, "run")
    if forecast.basis == "measured":
        return f"measured ({runs})"
    if forecast.basis == "roofline":
        return f"estimated ({forecast.source})"
    return f"scaled from {forecast.source} ({runs})" if forecast.basis == "scaled" else "a guess"


def offers_within_limits(spec: JobSpec, offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers on which the job's limits leave time to train, in the order given.

    Raises JobValueError, with the limit that would do, where there is none.
    """
    paid = [offer for offer in offers if offer.usd_per_hour > 0]
    if paid and spec.limits.hours * 3600 < policy.START_S:
        raise JobValueError(
            f"limits.hours: {spec.limits.hours:g} h is {spec.limits.hours * 3600:.2g} s; a machine needs "
            f"about {policy.START_S:.0f} s from its start until it trains",
            hint="--set limits.hours=0.5, or limits.hours in the job file",
        )
    limit_usd = policy.share_usd(spec)
    affordable = [
        offer
        for offer in offers
        if limit_usd is None or offer.usd_per_hour == 0 or policy.min_usd(offer) <= limit_usd
    ]
    if affordable or not offers:
        return affordable
    # The cheapest of those that are too dear: the least that the user has to add.
    cheapest = min(paid, key=policy.min_usd)
    min_usd = policy.min_usd(cheapest) * spec.nodes
    machines = "a machine" if spec.nodes == 1 else f"{spec.nodes} machines"
    raise JobValueError(
        f"limits.usd: ${spec.limits.usd:g} is too low: loading {machines} and one minute of training cost "
        f"{usd(min_usd)} on offer {cheapest.id}, the cheapest here",
        hint=f"--set limits.usd={math.ceil(min_usd * 100) / 100:.2f} or more; "
        f"all of the job: {usd(finishing_usd(spec, cheapest))}",
    )


def price_limit_error(spec: JobSpec, offers: Sequence[Offer]) -> NoOfferError:
    """Return the error for a job whose hourly price is below the cheapest offer."""
    cheapest = min(offer.usd_per_hour for offer in offers)
    return NoOfferError(
        f"limits.usd_per_hour: ${spec.limits.usd_per_hour:g} excludes every offer; the cheapest that fits "
        f"the job costs {usd(cheapest)}/h",
        hint=f"--set limits.usd_per_hour={math.ceil(cheapest * 100) / 100:.2f}, or relax resources:",
    )


def interruption_hours(hours: float, per_hour: float, start_hours: float, lost_hours: float | None) -> float:
    """Return the expected hours that interruptions add to `hours` of training.

    `per_hour`: interruptions per hour. `start_hours`: until another machine trains. `lost_hours`: work lost
    at each; None: all, as nothing is saved. Then the sum is that of a Poisson process that begins again at
    each event: (exp(rt) - 1)/r, t being one whole try.
    """
    if lost_hours is not None:
        return per_hour * hours * (start_hours + lost_hours)
    once = start_hours + hours
    expected = math.expm1(min(per_hour * once, 100.0)) / per_hour if per_hour else once
    return min(expected, _MAX_REPEATS * once) - once


def lost_hours(spec: JobSpec, steps_per_s: float | None) -> float | None:
    """Return the hours of work since the newest checkpoint that are lost on average; None: all of it."""
    if (steps := program_of(spec).checkpoint_every) is not None:
        return steps / 2 / steps_per_s / 3600 if steps_per_s else _USUAL_LOST_HOURS
    return None if spec.checkpoints.files is None else spec.checkpoints.every_s / 2 / 3600


def budget_error(use: BudgetUse, usd: float) -> BudgetError | None:
    """Return the error for a budget that does not cover `usd` more; None where it does.

    A free run always fits, even where more is reserved than the budget has by now.
    """
    budget = use.budget
    if usd <= 0 or use.held_usd + usd <= budget.usd + _ROUNDING_USD:
        return None
    needed_usd = math.ceil((use.held_usd + usd) * 100 - _ROUNDING_USD) / 100
    spent_usd = needed_usd - round(use.reserved_usd, 2) - round(usd, 2)  # so that the sum adds up
    return BudgetError(
        f"{budget.name}: ${spent_usd:.2f} is spent or may still be billed, and ${use.reserved_usd:.2f} "
        f"reserved, of ${budget.usd:.2f}; a further run may cost ${usd:.2f}, which would "
        f"take ${needed_usd:.2f}",
        hint=budget.hint.replace("USD", f"{needed_usd:.2f}"),
        budget=budget.name,
    )


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """A hard limit of the job that excludes some offers."""

    name: str
    """Key in the job file."""
    text: str
    """Requested value."""
    removed: int
    """Number of offers that fail here and passed all earlier limits."""


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """Number of offers that would remain without one of the job's limits."""

    name: str
    left: int


@dataclass(frozen=True, kw_only=True)
class Term:
    """One part of a job's cost."""

    name: str
    usd: float
    text: str = ""
    """Source of the number."""


@dataclass(frozen=True, kw_only=True)
class Quote:
    """Expected cost of finishing the job on one offer, by part."""

    offer: Offer
    terms: tuple[Term, ...]
    instead: str = ""
    """The other way to rent the same offer, on demand or by a bid, with its cost."""

    @property
    def usd(self) -> float:
        """Expected cost in USD, as `Offer.expected_usd`."""
        return sum(term.usd for term in self.terms)


@dataclass(frozen=True, kw_only=True)
class MarketReport:
    """The offers of a market within the job's limits, with the cost of finishing the job on each."""

    offers: int
    unreadable: int
    constraints: tuple[Constraint, ...]
    """Hard limits in the order in which they are applied."""
    relaxations: tuple[Relaxation, ...]
    """Limits without which more offers would remain, most offers first."""
    quotes: tuple[Quote, ...]
    """Quotes of the remaining offers, the cheapest to finish first."""
    strictest: Constraint | None = None
    """The limit that most offers fail; None: all pass every limit."""
    truncated: bool = False
    """True if the provider listed only the cheapest offers: there may be more."""
    avoided: int = 0
    """Number of offers that would fit, on hosts that failed recently."""
    beyond: int = 0
    """Number of offers that would fit and that a launch does not see, since a list is limited in length."""

    def without_hosts(self, avoid: AvoidedHosts) -> MarketReport:
        """Return the same market without offers on those hosts."""
        remaining = tuple(quote for quote in self.quotes if not avoid.covers(quote.offer))
        return replace(self, quotes=remaining, avoided=self.avoided + len(self.quotes) - len(remaining))

    def in_order(self, offers: Sequence[str]) -> MarketReport:
        """Return the same market with its quotes in the order of these offers."""
        places = {offer: place for place, offer in enumerate(offers)}
        return replace(self, quotes=tuple(sorted(self.quotes, key=lambda quote: places[quote.offer.id])))

    def limited_to(self, offers: Collection[str], name: str, text: str) -> MarketReport:
        """Return the same market with these offers only, after one more constraint."""
        remaining = tuple(quote for quote in self.quotes if quote.offer.id in offers)
        if len(remaining) == len(self.quotes):
            return self
        constraint = Constraint(name=name, text=text, removed=len(self.quotes) - len(remaining))
        return replace(self, quotes=remaining, constraints=(*self.constraints, constraint))
