"""Market report: a market as one job sees it, so that a choice can be explained."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from vastrun.launcher.core import Offer


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """A hard limit of the job that some offers do not pass."""

    name: str
    """As in the job file."""
    text: str
    """What it asks for."""
    removed: int
    """Offers that fail here and passed every limit before."""


@dataclass(frozen=True, kw_only=True)
class Relaxation:
    """What the job would have to choose from without one of its limits."""

    name: str
    left: int


@dataclass(frozen=True, kw_only=True)
class Term:
    """One part of what a job costs."""

    name: str
    usd: float
    text: str = ""
    """Where it comes from."""


@dataclass(frozen=True, kw_only=True)
class Quote:
    """What finishing the job on one offer is expected to cost, part by part."""

    offer: Offer
    terms: tuple[Term, ...]
    instead: str = ""
    """The other way to rent the same offer, on demand or by a bid, and what that would cost."""

    @property
    def usd(self) -> float:
        """As `Offer.expected_usd`."""
        return sum(term.usd for term in self.terms)


@dataclass(frozen=True, kw_only=True)
class MarketReport:
    """What the job's limits leave of a market, and what each offer would cost to finish."""

    offers: int
    unreadable: int
    constraints: tuple[Constraint, ...]
    """In the order in which they are tried."""
    relaxations: tuple[Relaxation, ...]
    """Those that would give more to choose from, the most first."""
    quotes: tuple[Quote, ...]
    """Of what is left, the cheapest to finish first."""
    strictest: Constraint | None = None
    """The limit that the most offers fail, whatever else they fail; None: all pass every limit."""
    truncated: bool = False
    """The provider listed only the cheapest offers: there may be more."""
    avoided: int = 0
    """Offers that would fit, on hosts that failed lately."""
    beyond: int = 0
    """Offers that would fit, and that a launch does not see: the provider lists only so many at once."""

    def without_hosts(self, hosts: Collection[str]) -> MarketReport:
        """Return the same market with no offer on those hosts."""
        kept = tuple(quote for quote in self.quotes if quote.offer.host not in hosts)
        return replace(self, quotes=kept, avoided=self.avoided + len(self.quotes) - len(kept))

    def in_order(self, offers: Sequence[str]) -> MarketReport:
        """Return the same market with its quotes in the order of these offers."""
        places = {offer: place for place, offer in enumerate(offers)}
        return replace(self, quotes=tuple(sorted(self.quotes, key=lambda quote: places[quote.offer.id])))

    def limited_to(self, offers: Collection[str], name: str, text: str) -> MarketReport:
        """Return the same market with these offers only; the others fail one more limit."""
        kept = tuple(quote for quote in self.quotes if quote.offer.id in offers)
        if len(kept) == len(self.quotes):
            return self
        constraint = Constraint(name=name, text=text, removed=len(self.quotes) - len(kept))
        return replace(self, quotes=kept, constraints=(*self.constraints, constraint))
