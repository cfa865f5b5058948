"""Documents of a job's market: offers and plans."""

from __future__ import annotations

from collections.abc import Sequence

from vastrun.launcher.commands.plan import LaunchPlan
from vastrun.launcher.core import Lease, LeftOutFiles, Offer
from vastrun.launcher.core.job import JobSpec
from vastrun.launcher.core.secrets import public_job
from vastrun.launcher.decisions.estimates import basis_text, expected_usd, finishing_usd
from vastrun.launcher.decisions.market_report import MarketReport, Quote
from vastrun.launcher.decisions.policy import worst_case_usd
from vastrun.launcher.ui.documents.document import Document
from vastrun.trainer.job.workload import Workloads


class OfferDocument(Document, Offer):
    """An offer, as the job sees it."""

    expected_usd: float
    """Expected cost of the job there within its limits, all nodes together."""
    finishing_usd: float
    """Expected cost of finishing it without its limits, by which offers are sorted; 0: not known."""
    at_most_usd: float
    """Most that its limits let it cost."""
    speed: str | None
    """Source of its speed, in words."""

    @classmethod
    def of(cls, offer: Offer, spec: JobSpec) -> OfferDocument:
        """Make the document of an offer for a job."""
        return cls.fill(
            offer,
            expected_usd=expected_usd(spec, offer),
            finishing_usd=finishing_usd(spec, offer),
            at_most_usd=worst_case_usd(spec, offer),
            speed=offer.forecast and basis_text(offer.forecast),
        )


class PlanDocument(Document):
    """The plan of a launch, with its costs."""

    job: JobSpec
    """The job, with `<secret>` in place of what is secret."""
    provider: str
    offers: Sequence[OfferDocument]
    """Best first."""
    worst_case_usd: float
    """On the first offer."""
    lease: Lease
    refused: Sequence[str]
    """Budgets without room for it."""
    deadline: str | None
    expected_end_at: float | None
    workloads: Workloads | None
    """Needs of a step on a rank; null: they were not estimated."""
    not_foretold: str | None
    """Reason why they were not."""
    left_out: LeftOutFiles | None
    """Files that would not be downloaded, by a rehearsal of the job; null: there was none."""

    @classmethod
    def of(cls, plan: LaunchPlan) -> PlanDocument:
        """Make the document of a plan."""
        return cls.fill(
            plan,
            job=public_job(plan.spec),
            offers=[OfferDocument.of(offer, plan.spec) for offer in plan.offers],
            refused=list(map(str, plan.refusals)),
            deadline=plan.spec.limits.deadline,
            workloads=plan.estimate.workloads,
            not_foretold=plan.estimate.note or None,
        )


class QuoteDocument(Document, Quote):
    """The expected cost of finishing the job on one offer."""

    printed_properties = ("usd",)

    offer: OfferDocument


class MarketReportDocument(Document, MarketReport):
    """The market within the job's limits."""

    quotes: tuple[QuoteDocument, ...]
    """Remaining offers, the cheapest to finish first."""
    left: int

    @classmethod
    def of(cls, report: MarketReport, spec: JobSpec) -> MarketReportDocument:
        """Make the document of a market report."""
        quotes = tuple(
            QuoteDocument.fill(one, offer=OfferDocument.of(one.offer, spec)) for one in report.quotes
        )
        return cls.fill(report, quotes=quotes, left=len(quotes))
