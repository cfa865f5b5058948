"""Pricing: what a batch may cost before it is started, and the share of its budget that each run gets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from launcher.batch.fleet_plan import FleetPlan, fleet_plan
from launcher.commands.planning import plan_of
from launcher.commands.settings import refusals_of
from launcher.config import dump_job, read_job
from launcher.core import Offer
from launcher.core.batch import BatchPoint, BatchSpec, Budget, BudgetUse, Search
from launcher.core.errors import BudgetError, JobValueError
from launcher.core.job import JobSpec
from launcher.decisions.budgets import refusal
from launcher.decisions.estimates import expected_usd, usd
from launcher.decisions.policy import worst_case_usd
from launcher.ports import Ledger, Provider

_MOST_ASKED = 12
"""So many points are looked up in the market; each of the others is priced as the nearest of them."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """What a batch would do."""

    spec: BatchSpec
    provider: str
    points: Sequence[BatchPoint]
    """Each with its share as its job's `limits.usd`, where machines cost money."""
    offer: Offer
    """The best one for the first point."""
    share_usd: float
    """The most that one run may cost: the largest of all points. No batch can do with less."""
    worst_case_usd: float
    """Of all points, one attempt each."""
    expected_usd: float
    wall_s: float | None
    """The least time that it takes: its runs side by side, and not more rents than the provider allows.

    None where nothing is known of it.
    """
    search: Search | None
    """With its share; None: the file gives all points."""
    count: int
    """How many points in all."""
    refusals: Sequence[BudgetError] = ()
    """Of the user's budgets that have no room for one run."""
    narrow: Sequence[BudgetUse] = ()
    """Those that may end the batch before its last point."""
    fleet: FleetPlan | None = None
    """The machines that are held for its points; None: each has one of its own."""


def price(
    spec: BatchSpec,
    points: Sequence[BatchPoint],
    provider: Provider,
    ledger: Ledger,
    now: float,
    search: Search | None = None,
    budgets: Sequence[Budget] = (),
) -> BatchPlan:
    """Return the plan; of a `search`, by the points with which it begins.

    Raises as `plan_of`; JobValueError for a budget that is missing or that is below what one run may cost.
    """
    count = len(points) if search is None else search.samples
    more = count / len(points)
    jobs = [read_job(point.spec_json) for point in points]
    offers = _offers(jobs, provider, ledger, now)
    shares = [_share_usd(job, offer) for job, offer in zip(jobs, offers, strict=True)]
    expected = [expected_usd(job, offer) for job, offer in zip(jobs, offers, strict=True)]
    all_usd = sum(map(min, expected, shares)) * more
    if not provider.free:
        _must_suffice(spec, max(shares), sum(shares) * more, all_usd)
        points = [_limited(*one) for one in zip(points, jobs, shares, strict=True)]
        search = search and replace(search, share_usd=max(shares))
    worst_usd = 0.0 if provider.free else min(sum(shares) * more, spec.limits.usd or math.inf)
    return BatchPlan(
        spec=spec,
        provider=provider.name,
        points=points,
        offer=offers[0],
        share_usd=max(shares),
        worst_case_usd=sum(shares) * more,
        expected_usd=all_usd,
        wall_s=_wall_s(spec, offers, provider, count),
        search=search,
        count=count,
        fleet=fleet_plan(spec, read_job(points[0].spec_json), count, provider, ledger, now),
        refusals=refusals_of(ledger, budgets, 0.0 if provider.free else max(shares)),
        narrow=[use for use in map(ledger.use_of, budgets) if refusal(use, worst_usd)],
    )


def _offers(jobs: Sequence[JobSpec], provider: Provider, ledger: Ledger, now: float) -> list[Offer]:
    """Return the best offer for each job, asked for some of them that are spread over all."""
    asked = sorted({round(n * (len(jobs) - 1) / (_MOST_ASKED - 1)) for n in range(_MOST_ASKED)})
    found = {n: plan_of(jobs[n], provider, ledger, now).offers[0] for n in asked}
    return [found[min(asked, key=lambda one: abs(one - n))] for n in range(len(jobs))]


def _share_usd(job: JobSpec, offer: Offer) -> float:
    """Return what one run may cost: its job's own limit, else the worst case on the offer, in whole cents."""
    if job.limits.usd is not None:
        return job.limits.usd
    return math.ceil(worst_case_usd(job, offer) * 100) / 100


def _limited(point: BatchPoint, job: JobSpec, share_usd: float) -> BatchPoint:
    limited = replace(job, limits=replace(job.limits, usd=share_usd))
    return replace(point, spec_json=dump_job(limited))


def _must_suffice(spec: BatchSpec, share_usd: float, all_usd: float, expected_usd: float) -> None:
    limit_usd = spec.limits.usd
    if limit_usd is None:
        raise JobValueError(
            f"limits.usd: missing; machines cost money here: {usd(expected_usd)} is expected for all points, "
            f"at most {usd(all_usd)}",
            hint=f"limits: {{usd: {math.ceil(expected_usd * 1.5 + share_usd)}}} in the batch file, or --usd",
        )
    if limit_usd < share_usd:
        raise JobValueError(
            f"limits.usd: ${limit_usd:g} is less than one run may cost, {usd(share_usd)}",
            hint=f"limits: {{usd: {share_usd:.2f}}} or more; or lower limits in the job",
        )


def _wall_s(spec: BatchSpec, offers: Sequence[Offer], provider: Provider, count: int) -> float | None:
    seconds = [one.expected_usd / one.usd_per_hour * 3600 for one in offers if one.usd_per_hour > 0]
    if not seconds:
        return None
    all_s = sum(seconds) / len(seconds) * count
    rents_s = count * provider.abilities.rents_every_s
    return max(all_s / min(spec.limits.parallel, count), rents_s, max(seconds))
