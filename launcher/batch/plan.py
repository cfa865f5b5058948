"""Plan of a batch: its maximum cost, the budget share of each run, and its rows in the ledger."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from vastrun.launcher.batch.fleet_plan import FleetPlan, fleet_plan
from vastrun.launcher.batch.search import with_limit
from vastrun.launcher.commands.plan import plan_of
from vastrun.launcher.commands.settings import refusals_of
from vastrun.launcher.config import read_job
from vastrun.launcher.core import Offer, Verdict
from vastrun.launcher.core.batch import MAX_NAME, Batch, BatchPoint, BatchSpec, Budget, BudgetUse, Search
from vastrun.launcher.core.errors import BudgetError, JobValueError, UsageError
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.decisions.estimates import budget_error, expected_usd, usd
from vastrun.launcher.decisions.policy import min_usd, worst_case_usd
from vastrun.launcher.outputs.disk import disk_errors, ignore_in_git
from vastrun.launcher.ports import Ledger, Packer, Provider

if TYPE_CHECKING:
    from vastrun.launcher.config.batch_file import LoadedBatch

_WHERE = "in the batch file, or --usd"
_SHARE_MARGIN = 1.5
"""Times what a run is expected to cost: its share when the budget is small."""
_MAX_EARLIER_RUNS = 10
"""Number of earlier runs that an expected time is taken from."""
_MAX_PRICED_POINTS = 12
"""Number of points priced by a market search; each other point has the price of the nearest."""


@dataclass(frozen=True, kw_only=True)
class BatchPlan:
    """Plan of a batch."""

    spec: BatchSpec
    provider: str
    points: Sequence[BatchPoint]
    """Each with its share as its job's `limits.usd`, where machines cost money."""
    offer: Offer
    """The best one for the first point."""
    share_usd: float
    """The most that one run may cost: the largest of all points. No batch can do with less."""
    worst_case_usd: float
    """USD for one attempt at every point."""
    expected_usd: float
    wall_s: float | None
    """The least time that it takes: its runs side by side, and not more rents than the provider allows.

    None where nothing is known of it.
    """
    earlier_runs: int
    """Number of earlier runs behind that time; 0: it follows from price and speed of the offers."""
    limit_s: float
    """The most time that the limits of the jobs allow."""
    search: Search | None
    """With its share; None: the file gives all points."""
    count: int
    """Total number of points."""
    refusals: Sequence[BudgetError] = ()
    """Errors of the user's budgets that have no room for one run."""
    narrow: Sequence[BudgetUse] = ()
    """Budgets that may end the batch before its last point."""
    fleet: FleetPlan | None = None
    """Machines held for its points; None: each point has its own."""


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
    shares = [_share_usd(spec, count, job, offer) for job, offer in zip(jobs, offers, strict=True)]
    expected = [expected_usd(job, offer) for job, offer in zip(jobs, offers, strict=True)]
    all_usd = sum(map(min, expected, shares)) * more
    succeeded = (jobs[0].name, provider.name, Verdict.SUCCEEDED)
    earlier = [run for run in ledger.runs(newest=1000) if (run.job, run.provider, run.verdict) == succeeded]
    durations_s = [run.phase_at - run.created_at for run in earlier[:_MAX_EARLIER_RUNS]]
    if not provider.free:
        largest_min_usd = max(min_usd(offer) * job.nodes for job, offer in zip(jobs, offers, strict=True))
        _check_budget(spec, max(shares), sum(shares) * more, all_usd, largest_min_usd)
        points = [with_limit(*one) for one in zip(points, shares, strict=True)]
        search = search and replace(search, share_usd=max(shares))
    expected_s = [one.expected_usd / one.usd_per_hour * 3600 for one in offers if one.usd_per_hour > 0]
    rounds = math.ceil(count / min(spec.limits.parallel, count))
    worst_usd = 0.0 if provider.free else min(sum(shares) * more, spec.limits.usd or math.inf)
    return BatchPlan(
        spec=spec,
        provider=provider.name,
        points=points,
        offer=offers[0],
        share_usd=max(shares),
        worst_case_usd=sum(shares) * more,
        expected_usd=all_usd,
        wall_s=_wall_s(spec, [fmean(durations_s)] if durations_s else expected_s, provider, count),
        earlier_runs=len(durations_s),
        limit_s=rounds * max(job.limits.hours for job in jobs) * 3600,
        search=search,
        count=count,
        fleet=fleet_plan(spec, read_job(points[0].spec_json), count, provider, ledger, now),
        refusals=refusals_of(ledger, budgets, 0.0 if provider.free else max(shares)),
        narrow=[use for use in map(ledger.use_of, budgets) if budget_error(use, worst_usd)],
    )


def _offers(jobs: Sequence[JobSpec], provider: Provider, ledger: Ledger, now: float) -> list[Offer]:
    """Return the best offer for each job, asked for some of them that are spread over all."""
    asked = sorted({round(n * (len(jobs) - 1) / (_MAX_PRICED_POINTS - 1)) for n in range(_MAX_PRICED_POINTS)})
    found = {n: plan_of(_with_money_limit(jobs[n]), provider, ledger, now).offers[0] for n in asked}
    return [found[min(asked, key=lambda one: abs(one - n))] for n in range(len(jobs))]


def _with_money_limit(job: JobSpec) -> JobSpec:
    """Return the job for a market search; without its own money limit it gets a practically unlimited one."""
    if job.limits.usd is not None or job.limits.usd_per_hour is not None:
        return job
    return replace(job, limits=replace(job.limits, usd=1e9))


def _share_usd(spec: BatchSpec, count: int, job: JobSpec, offer: Offer) -> float:
    """Return what one run may cost: its job's own limit, else the worst case on the offer, in whole cents.

    Where the batch may not cost that much, the runs at once share what it may cost: as many of them as should
    finish with it, where their speed is known.
    """
    if job.limits.usd is not None:
        return job.limits.usd
    worst_usd, limit_usd = math.ceil(worst_case_usd(job, offer) * 100) / 100, spec.limits.usd
    if limit_usd is None or worst_usd <= limit_usd or not offer.usd_per_hour:
        return worst_usd
    is_known = offer.forecast is not None and offer.forecast.basis != "guess"
    finishing_usd = _SHARE_MARGIN * expected_usd(job, offer) if is_known else 0.0
    needed_usd = max(min_usd(offer) * job.nodes, finishing_usd)
    at_once = min(spec.limits.parallel, count, int(limit_usd / needed_usd))
    return math.floor(limit_usd / max(1, at_once) * 100) / 100


def _check_budget(
    spec: BatchSpec, share_usd: float, all_usd: float, expected_usd: float, min_usd: float
) -> None:
    """Raise JobValueError for a budget that is missing, or that does not pay for one run."""
    limit_usd = spec.limits.usd
    if limit_usd is None:
        raise JobValueError(
            f"limits.usd: missing; machines cost money here: {usd(expected_usd)} is expected for all points, "
            f"at most {usd(all_usd)}",
            hint=f"limits: {{usd: {math.ceil(expected_usd * 1.5 + share_usd)}}} {_WHERE}",
        )
    if limit_usd < min_usd:
        raise JobValueError(
            f"limits.usd: ${limit_usd:g} is too low: loading a machine and one minute of training cost "
            f"{usd(min_usd)}",
            hint=f"limits: {{usd: {math.ceil(min_usd * 100) / 100:.2f}}} or more {_WHERE}",
        )
    if limit_usd < share_usd:
        raise JobValueError(
            f"limits.usd: ${limit_usd:g} is less than one run may cost, {usd(share_usd)}",
            hint=f"limits: {{usd: {share_usd:.2f}}} or more {_WHERE}; or lower limits in the job",
        )


def _wall_s(spec: BatchSpec, seconds: Sequence[float], provider: Provider, count: int) -> float | None:
    """Return the least time that the batch takes, by the seconds of some of its runs."""
    if not any(seconds):
        return None
    all_s = sum(seconds) / len(seconds) * count
    rents_s = count * provider.abilities.rents_every_s
    return max(all_s / min(spec.limits.parallel, count), rents_s, max(seconds))


def rename_for_job(ledger: Ledger, loaded: LoadedBatch) -> LoadedBatch:
    """Return the batch, renamed to NAME-2, NAME-3, … if the ledger has its name with another job."""
    known = {batch.name for batch in ledger.batches.all()}
    own = loaded.spec.name
    for number in itertools.count(1):
        suffix = f"-{number}" if number > 1 else ""
        name = f"{own[: MAX_NAME - len(suffix)]}{suffix}"
        if name not in known or _has_job(ledger, name, loaded.job):
            break
    return replace(loaded, spec=replace(loaded.spec, name=name))


def pack_code(
    points: Sequence[BatchPoint], search: Search | None, packer: Packer
) -> tuple[list[BatchPoint], Search | None]:
    """Pack the code of all runs now; return the points and the search with its digests."""
    from vastrun.launcher.config.batch_file import with_code  # slow to import: pydantic, yaml

    jobs = [packer.keep_code(read_job(point.spec_json)) for point in points]
    packed = [with_code(point, job) for point, job in zip(points, jobs, strict=True)]
    return packed, search and replace(search, code_digest=jobs[0].code_digest)


def _has_job(ledger: Ledger, name: str, job: Any) -> bool:
    """Return whether the batch of that name has points of this job, or no points."""
    from vastrun.launcher.config.batch_file import is_of_job  # slow to import: pydantic, yaml

    points = ledger.batches.points(name)
    return not points or any(is_of_job(point, job) for point in points)


def submit_plan(
    ledger: Ledger, plan: BatchPlan, folder: Path, now: float, computer: str
) -> tuple[Batch, int]:
    """Write the batch into the ledger; return it with the number of new points.

    `computer`: the computer that has `folder`, as in `Run.computer`. Raises UsageError, and StorageError if
    the folder cannot be made.
    """
    batch = Batch(
        name=plan.spec.name,
        spec=plan.spec,
        provider=plan.provider,
        folder=str(folder),
        created_at=now,
        opened_at=now,
        search=plan.search,
        computer=computer,
        home=computer,
    )
    new = ledger.batches.submit(batch, plan.points)
    batch = ledger.batches.get(batch.name)
    # Before its first run is packed: the outputs may be inside the code folder, and must not be uploaded.
    if batch.computer == computer:
        with disk_errors(batch.folder) as out:
            ignore_in_git(out)
    return batch, new


def check_can_start(ledger: Ledger, plan: BatchPlan, folder: Path) -> None:
    """Check that a new batch may start; a known one always may, as its points may have ended.

    Raises UsageError if the folder holds other files, BudgetError if a budget has no room for one run.
    """
    if any(batch.name == plan.spec.name for batch in ledger.batches.all()):
        return
    try:
        holds_files = folder.exists() and any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror}") from error
    if holds_files:
        raise UsageError(f"{folder} holds other files", hint="--out ANOTHER_FOLDER, or another name:")
    if plan.refusals:
        raise plan.refusals[0]
