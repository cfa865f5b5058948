"""`plan --explain` in text: what each limit removes, and why an offer comes before another."""

from __future__ import annotations

from collections.abc import Sequence

from launcher.core.job import JobSpec
from launcher.decisions.market_report import Quote, Survey
from launcher.decisions.policy import worst_case_usd
from launcher.ui.render.amounts import usd
from launcher.ui.render.table import short, table

_MOST_QUOTES = 8
_MOST_RELAXATIONS = 3


def survey_text(survey: Survey, spec: JobSpec) -> str:
    """The funnel, the ranking with its terms, and the terms of the best."""
    parts = [_funnel(survey)]
    if survey.quotes:
        parts += [_ranking(survey.quotes), _best(survey.quotes[0], spec)]
    return "\n\n".join(parts)


def _funnel(survey: Survey) -> str:
    rows = [(str(survey.offers), "offers on the market", "")]
    rows += [
        (f"-{hurdle.removed}", f"fail {hurdle.name}", short(hurdle.text, 48)) for hurdle in survey.hurdles
    ]
    rows += [(f"-{survey.unreadable}", "cannot be read", "")] if survey.unreadable else []
    rows += (
        [(f"-{survey.avoided}", "on hosts to avoid", "vastrun hosts lists them")] if survey.avoided else []
    )
    rows += [(f"-{survey.beyond}", "not looked at", "a search lists only the best")] if survey.beyond else []
    rows += [(str(len(survey.quotes)), "left", "")]
    lines = table(rows[0], rows[1:], right=(0,))
    gains = [f"{one.name} to get {one.left}" for one in survey.relaxations[:_MOST_RELAXATIONS]]
    return f"{lines}\nrelax {' or '.join(gains)}" if gains else lines


def _ranking(quotes: Sequence[Quote]) -> str:
    names = [term.name.upper() for term in quotes[0].terms]
    cells = [
        (
            usd(quote.usd),
            *(f"{term.usd:.3f}" for term in quote.terms),
            f"{quote.offer.usd_per_hour:.3f}",
            short(quote.offer.host, 9),
            short(f"{quote.offer.gpus} x {quote.offer.gpu_name or 'CPU'}", 14),
        )
        for quote in quotes[:_MOST_QUOTES]
    ]
    header = ("EXPECTED", *names, "$/H", "HOST", "GPUS")
    more = f"\n{len(quotes) - _MOST_QUOTES} more" if len(quotes) > _MOST_QUOTES else ""
    return table(header, cells, right=range(len(names) + 2)) + more


def _best(quote: Quote, spec: JobSpec) -> str:
    cells = [(term.name, usd(term.usd), term.text) for term in quote.terms]
    sums = [
        ("expected", usd(quote.offer.expected_usd), "to finish the job; offers are sorted by it"),
        ("at most", usd(worst_case_usd(spec, quote.offer)), "as the limits of the job let it cost"),
    ]
    return table(("THE BEST", "COST", "FOR"), [*cells, *sums], right=(1,))
