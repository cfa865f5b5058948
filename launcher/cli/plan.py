"""`vastrun plan`: show the offers for a job with their costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from vastrun.launcher.api.jobs import check_upload
from vastrun.launcher.app_context import AppContext
from vastrun.launcher.cli.job_files import print_warnings, read_job_file, resolve_auto
from vastrun.launcher.cli.options import (
    by_option,
    job_argument,
    json_option,
    lenient_provider_option,
    set_option,
)
from vastrun.launcher.cli.output import note, show, width
from vastrun.launcher.commands.plan import WorkloadEstimate, market_report_of, plan_of
from vastrun.launcher.commands.rehearse import left_out_of_rehearsal
from vastrun.launcher.commands.settings import budgets_of
from vastrun.launcher.core import NOTHING
from vastrun.launcher.core.errors import NoOfferError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.policy import within_deadline
from vastrun.launcher.ports import Provider
from vastrun.launcher.ui.documents.market import MarketReportDocument, PlanDocument
from vastrun.launcher.ui.render.market_report import market_report_text
from vastrun.launcher.ui.render.plan import plan_text


@click.command("plan")
@job_argument
@set_option
@by_option
@lenient_provider_option
@click.option(
    "--explain", is_flag=True, help="Show how many offers each limit removes, and the terms of the ranking."
)
@json_option
@click.pass_context
def command(
    ctx: click.Context,
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
    app: AppContext = ctx.obj
    spec = read_job_file(job_file, sets, by)
    check_upload(app.make.packer(NOTHING), spec, job_file.resolve().parent, note)
    market, ledger, now = app.provider(provider), app.ledger(), app.now()
    spec = resolve_auto(app, spec, market)
    estimate = _estimate(app, spec, market)
    if explain:
        spec = within_deadline(spec, now)
        market_report = market_report_of(spec, market, ledger, now)
        document = MarketReportDocument.of(market_report, spec)
        show(document, market_report_text(market_report, spec), as_json=as_json)
        ctx.exit(0 if market_report.quotes else NoOfferError.exit_code)
    budgets = budgets_of(app.settings().settings.budget, now)
    left_out = left_out_of_rehearsal(app.paths.cache, spec)
    plan = replace(plan_of(spec, market, ledger, now, budgets), estimate=estimate, left_out=left_out)
    print_warnings(spec, market, plan.offers)
    show(PlanDocument.of(plan), plan_text(plan, width()), as_json=as_json)


def _estimate(app: AppContext, spec: JobSpec, market: Provider) -> WorkloadEstimate:
    """Estimate the needs of a step, before the provider's search, which reads the estimate from the cache."""
    from vastrun.launcher.commands.estimate import EstimateError

    if market.free or not spec.resources.gpus:
        return WorkloadEstimate()
    try:
        return WorkloadEstimate(workloads=app.make.estimator().workloads(spec))
    except EstimateError as error:
        return WorkloadEstimate(note=f"no estimate: {error}")
