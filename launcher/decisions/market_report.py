"""Market report: the offers of a market for one job, with the reasons for a choice."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import Offer
from vastrun.launcher.decisions.history import AvoidedHosts


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
