"""Plans: what a launch would rent and may cost, and the market as the job sees it. Costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vastrun.contract.workload import Workloads
from vastrun.launcher.commands.settings import refusals_of
from vastrun.launcher.core import LeftOutFiles, Offer, Run
from vastrun.launcher.core.batch import Budget
from vastrun.launcher.core.errors import BudgetError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.market import Lease
from vastrun.launcher.decisions import deadlines
from vastrun.launcher.decisions.estimates import MarketReport, offers_within_limits
from vastrun.launcher.decisions.history import HOST_CAUSES, avoided
from vastrun.launcher.decisions.policy import (
    START_S,
    deadline_of,
    lease_of,
    reservation_usd,
    within_deadline,
    worst_case_usd,
)
from vastrun.launcher.flow.drive import costs_nothing
from vastrun.launcher.flow.progress import resumed_step
from vastrun.launcher.flow.rental import choose_offers
from vastrun.launcher.ports import Ledger, Provider


@dataclass(frozen=True, kw_only=True)
class WorkloadEstimate:
    """Estimate of a job's steps, made before a machine is rented."""

    workloads: Workloads | None = None
    note: str = ""
    """Reason why there is no estimate; empty where there is one, or none was requested."""


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """Offers for a job, best first, and the cost limit."""

    spec: JobSpec
    provider: str
    offers: Sequence[Offer]
    notes: Sequence[str]
    """Findings of the search in each part of the provider, for example in the partitions of a cluster."""
    worst_case_usd: float
    """On the first offer."""
    lease: Lease
    refusals: Sequence[BudgetError] = ()
    """Errors of the budgets that have no room for it."""
    time_limit: str = "limits.hours"
    """Option that limits the lease's time, where money does not."""
    deadline: str = ""
    """Sentence on whether the first offer should meet the deadline; empty without a deadline."""
    expected_end_at: float | None = None
    """Expected end there, in epoch seconds; None: unknown, or no deadline."""
    estimate: WorkloadEstimate = WorkloadEstimate()
    """Memory and operations of a step."""
    left_out: LeftOutFiles | None = None
    """Files that would not be downloaded, by a rehearsal of the job; None: there was none."""


def plan_of(
    spec: JobSpec,
    provider: Provider,
    ledger: Ledger,
    now: float,
    budgets: Sequence[Budget] = (),
    parent: Run | None = None,
) -> LaunchPlan:
    """Return what `launch` would rent, to continue `parent`, and which budgets would refuse it.

    Costs nothing. Raises as `choose`.
    """
    original, spec = spec, within_deadline(spec, now)
    done = resumed_step(spec, None if parent is None else parent.id, ledger)
    avoid = avoided(ledger.runs(causes=HOST_CAUSES, members=True), provider.name, now)
    offers = choose_offers(spec, provider, avoid, now=now, done=done)
    return LaunchPlan(
        spec=spec,
        provider=provider.name,
        offers=offers,
        notes=() if provider.abilities.notes is None else provider.abilities.notes(),
        worst_case_usd=worst_case_usd(spec, offers[0]),
        lease=lease_of(spec, offers[0]),
        refusals=refusals_of(ledger, budgets, 0.0 if costs_nothing(provider) else reservation_usd(spec)),
        time_limit="limits.hours" if spec is original else "limits.deadline",
        deadline=deadlines.deadline_text(spec, offers[0], now, done),
        expected_end_at=deadlines.expected_end(spec, offers[0], now, done) if spec.limits.deadline else None,
    )


def market_report_of(spec: JobSpec, provider: Provider, ledger: Ledger, now: float) -> MarketReport:
    """Describe the market as the job sees it, without the hosts to avoid; what is in time comes first.

    Raises UsageError where there is none, or where the job's limits leave no time to train on any offer.
    """
    market = provider.abilities.market
    if market is None:
        raise UsageError(
            f"{provider.name} has no market to explain",
            hint="vastrun plan JOB.yaml --explain --provider vast",
        )
    spec = within_deadline(spec, now)
    deadlines.check_deadline(spec, now, min_s=START_S)
    avoid = avoided(ledger.runs(causes=HOST_CAUSES, members=True), provider.name, now)
    report = market(spec).without_hosts(avoid)
    offers = offers_within_limits(spec, [quote.offer for quote in report.quotes])
    enough = {offer.id for offer in offers}
    report = report.limited_to(enough, "limits.usd", "loading and one minute of training")
    if spec.limits.deadline is None:
        return report
    ahead = [offer.id for offer in deadlines.offers_in_time(spec, offers, now)]
    by = f"expected to finish by {deadlines.moment_text(spec, deadline_of(spec) or now)}"
    return report.limited_to(ahead, "limits.deadline", by).in_order(ahead)
