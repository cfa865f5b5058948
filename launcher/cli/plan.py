"""`vastrun plan`: show the offers for a job with their costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import click

from vastrun.launcher.api.jobs import check_upload
from vastrun.launcher.app import App
from vastrun.launcher.cli import options
from vastrun.launcher.cli.job_files import print_warnings, read_job_file, resolve_auto
from vastrun.launcher.cli.output import exit_with, note, show, width
from vastrun.launcher.commands.plan import WorkloadEstimate, market_report_of, plan_of
from vastrun.launcher.commands.rehearse import left_out_of_rehearsal
from vastrun.launcher.commands.settings import budgets_of
from vastrun.launcher.core import NOTHING
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import Basis
from vastrun.launcher.decisions.estimates import MarketReport, Quote, expected_usd, finishing_usd
from vastrun.launcher.decisions.policy import all_attempts_usd, within_deadline, worst_case_usd
from vastrun.launcher.ports import Provider
from vastrun.launcher.ui.render.amounts import short, table, usd
from vastrun.launcher.ui.render.plan import MarketReportDocument, PlanDocument, plan_text

_MAX_QUOTES = 8
_BASES: Mapping[Basis, str] = {
    "measured": "measured (m)",
    "scaled": "scaled from another kind of machine (s)",
    "roofline": "estimated, not measured (r)",
    "guess": "a guess (g)",
}


@click.command("plan")
@options.job_argument
@options.set_option
@options.by_option
@options.lenient_provider_option
@click.option(
    "--explain", is_flag=True, help="Show how many offers each limit removes, and the terms of the ranking."
)
@options.json_option
@click.pass_obj
def command(
    app: App,
    job_file: Path,
    sets: tuple[str, ...],
    by: str | None,
    provider: str,
    explain: bool,
    as_json: bool,
) -> None:
    """Show the offers for a job with their expected and maximum costs. Costs nothing.

    For the onboard trainer, also estimate the GPU memory and time of a step, without a GPU; this takes a few
    seconds the first time, and needs torch. Offers without enough GPU memory are left out.
    """
    spec = read_job_file(job_file, sets, by)
    spec = check_upload(app.packer(NOTHING), spec, job_file.resolve().parent, note)
    market, ledger, now = app.provider(provider), app.ledger(), app.now()
    spec = resolve_auto(app, spec)
    estimate = _estimate(app, spec, market)
    if explain:
        spec = within_deadline(spec, now)
        market_report = market_report_of(spec, market, ledger, now)
        document = MarketReportDocument.of(market_report, spec)
        show(document, market_report_text(market_report, spec), as_json=as_json)
        exit_with(0 if market_report.quotes else NoOfferError.exit_code)
    budgets = budgets_of(app.settings().settings.budget, now)
    left_out = left_out_of_rehearsal(app.cache, spec)
    plan = replace(plan_of(spec, market, ledger, now, budgets), estimate=estimate, left_out=left_out)
    print_warnings(spec, market, plan.offers)
    show(PlanDocument.of(plan), plan_text(plan, width()), as_json=as_json)


def _estimate(app: App, spec: JobSpec, market: Provider) -> WorkloadEstimate:
    """Estimate the needs of a step, before the provider's search, which reads the estimate from the cache."""
    from vastrun.launcher.commands.estimate import EstimateError

    if market.free or not spec.resources.gpus:
        return WorkloadEstimate()
    try:
        return WorkloadEstimate(workloads=app.estimator().workloads(spec))
    except EstimateError as error:
        return WorkloadEstimate(note=f"no estimate: {error}")


def market_report_text(market_report: MarketReport, spec: JobSpec) -> str:
    """Write the funnel, the ranking with its terms, and the terms of the best offer."""
    more = "the cheapest ones; more may exist" if market_report.truncated else ""
    rows = [(str(market_report.offers), "offers on the market", more)]
    rows += [
        (f"-{constraint.removed}", f"fail {constraint.name}", short(constraint.text, 48))
        for constraint in market_report.constraints
    ]
    for count, what, why in (
        (market_report.unreadable, "cannot be read", ""),
        (market_report.avoided, "on hosts to avoid", "vastrun hosts lists them"),
        (market_report.beyond, "not examined", "a search lists only the best"),
    ):
        rows += [(f"-{count}", what, why)] if count else []
    rows += [(str(len(market_report.quotes)), "left", "")]
    lines = table(rows[0], rows[1:], right=(0,))
    gains = [f"{one.name} to get {one.left}" for one in market_report.relaxations[:3]]
    strictest = market_report.strictest
    if strictest is not None:
        share = f"{strictest.removed} of {market_report.offers} offers"
        lines += f"\n{share} fail {strictest.name}, more than any other limit"
    parts = [f"{lines}\nrelax {' or '.join(gains)}" if gains else lines]
    if market_report.quotes:
        quote = market_report.quotes[0]
        cells = [(term.name, usd(term.usd), term.text) for term in quote.terms]
        sums = [
            ("to finish", usd(finishing_usd(spec, quote.offer)), "all of the job; offers are sorted by it"),
            ("expected", usd(expected_usd(spec, quote.offer)), "the same, but not above the maximum"),
            ("at most", usd(worst_case_usd(spec, quote.offer)), "by the limits of the job"),
            ("with retries", usd(all_attempts_usd(spec, quote.offer)), "the most that all attempts may cost"),
        ]
        shown = table(("THE BEST", "COST", "FOR"), [*cells, *sums], right=(1,))
        parts += [_ranking(market_report.quotes), (f"{shown}\n{quote.instead}" if quote.instead else shown)]
    return "\n\n".join(parts)


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
