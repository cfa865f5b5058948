"""`plan --explain` in text: the offers that each limit removes, and the terms of the ranking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import Basis
from vastrun.launcher.decisions.estimates import expected_usd, finishing_usd
from vastrun.launcher.decisions.market_report import MarketReport, Quote
from vastrun.launcher.decisions.policy import worst_case_usd
from vastrun.launcher.ui.render.amounts import usd
from vastrun.launcher.ui.render.table import short, table

_MAX_QUOTES = 8
_MAX_RELAXATIONS = 3
_BASES: Mapping[Basis, str] = {
    "measured": "measured (m)",
    "scaled": "scaled from another kind of machine (s)",
    "roofline": "estimated, not measured (r)",
    "guess": "a guess (g)",
}


def market_report_text(market_report: MarketReport, spec: JobSpec) -> str:
    """Write the funnel, the ranking with its terms, and the terms of the best offer."""
    parts = [_funnel(market_report)]
    if market_report.quotes:
        parts += [_ranking(market_report.quotes), _best(market_report.quotes[0], spec)]
    return "\n\n".join(parts)


def _funnel(market_report: MarketReport) -> str:
    more = "the cheapest ones; more may exist" if market_report.truncated else ""
    rows = [(str(market_report.offers), "offers on the market", more)]
    rows += [
        (f"-{constraint.removed}", f"fail {constraint.name}", short(constraint.text, 48))
        for constraint in market_report.constraints
    ]
    rows += [(f"-{market_report.unreadable}", "cannot be read", "")] if market_report.unreadable else []
    rows += (
        [(f"-{market_report.avoided}", "on hosts to avoid", "vastrun hosts lists them")]
        if market_report.avoided
        else []
    )
    rows += (
        [(f"-{market_report.beyond}", "not examined", "a search lists only the best")]
        if market_report.beyond
        else []
    )
    rows += [(str(len(market_report.quotes)), "left", "")]
    lines = table(rows[0], rows[1:], right=(0,))
    gains = [f"{one.name} to get {one.left}" for one in market_report.relaxations[:_MAX_RELAXATIONS]]
    strictest = market_report.strictest
    if strictest is not None:
        share = f"{strictest.removed} of {market_report.offers} offers"
        lines += f"\n{share} fail {strictest.name}, more than any other limit"
    return f"{lines}\nrelax {' or '.join(gains)}" if gains else lines


def _ranking(quotes: Sequence[Quote]) -> str:
    names = [term.name.upper() for term in quotes[0].terms]
    shown = quotes[:_MAX_QUOTES]
    bases = {quote.offer.forecast.basis for quote in shown if quote.offer.forecast}
    known = [words for basis, words in _BASES.items() if basis in bases]
    cells = [
        (
            usd(quote.usd),
            *(f"{term.usd:.3f}" for term in quote.terms),
            f"{quote.offer.usd_per_hour:.3f}",
            *([quote.offer.forecast.basis[0] if quote.offer.forecast else ""] if known else []),
            short(quote.offer.host, 7),
            short(f"{quote.offer.gpus} x {quote.offer.gpu_name or 'CPU'}", 12),
        )
        for quote in shown
    ]
    header = ("TO FINISH", *names, "$/H", *(["BY"] if known else []), "HOST", "GPUS")
    more = f"\n{len(quotes) - _MAX_QUOTES} more" if len(quotes) > _MAX_QUOTES else ""
    legend = f"\nBY: the speed is {', '.join(known)}" if known else ""
    return table(header, cells, right=range(len(names) + 2)) + more + legend


def _best(quote: Quote, spec: JobSpec) -> str:
    cells = [(term.name, usd(term.usd), term.text) for term in quote.terms]
    sums = [
        ("to finish", usd(finishing_usd(spec, quote.offer)), "all of the job; offers are sorted by it"),
        ("expected", usd(expected_usd(spec, quote.offer)), "the same, but not above the maximum"),
        ("at most", usd(worst_case_usd(spec, quote.offer)), "by the limits of the job"),
    ]
    shown = table(("THE BEST", "COST", "FOR"), [*cells, *sums], right=(1,))
    return f"{shown}\n{quote.instead}" if quote.instead else shown
